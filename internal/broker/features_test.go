package broker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDecideLevel(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	all := []levelRange{{1, 3}, {1, 3}}
	for _, c := range []struct {
		name        string
		from, to    int16
		upgradeType int8
		supported   []levelRange
		want        string // part of why not; empty: it may
	}{
		{"up", 2, 3, 1, all, ""},
		{"the same", 3, 3, 1, all, ""},
		{"the same, as a downgrade", 3, 3, 2, all, ""},
		{"down, safely", 3, 2, 2, all, ""},
		{"down, unsafely", 3, 1, 3, all, ""},
		{"down, not asked for", 3, 2, 1, all, "downgrade"},
		{"up, as a downgrade", 2, 3, 2, all, "not a downgrade"},
		{"higher than anybody has", 2, 4, 1, all, "broker 0"},
		{"higher than one broker has", 2, 3, 1, []levelRange{{1, 3}, {1, 2}}, "broker 1 supports levels 1 to 2"},
		{"lower than anybody has", 2, 0, 2, all, "broker 0"},
		{"negative", 2, -1, 3, all, "broker 0"},
	} {
		why := decideLevel(c.from, c.to, c.upgradeType, c.supported)
		if (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: %q, want %q", c.name, why, c.want)
		}
	}
}

func TestLevelsOfStaging(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		profile wire.Profile
		levels  levels
		want    bool
	}{
		{wire.Draft95, levels{3, 2}, true},
		{wire.Draft95, levels{2, 2}, false},
		{wire.Draft95, levels{3, 1}, false},
		{wire.KIP93, levels{2, 2}, true},
		{wire.KIP93, levels{1, 2}, false},
		{wire.KIP93, levels{2, 1}, false},
		{wire.None, levels{3, 2}, false},
	} {
		if got := c.levels.staging(c.profile); got != c.want {
			t.Errorf("%v at %+v: %v", c.profile, c.levels, got)
		}
	}
}

// told is what a node says of features and of the staging key.
type told struct {
	epoch        int64
	share, txn   int16
	maxShare     int16
	key          bool
	handshake    int16 // what staging answers to it; -1: the connection is cut
	groupVersion int16 // a feature of kfake's
}

func tell(ctx context.Context, t *testing.T, c *Cluster, node int) told {
	t.Helper()
	w := dial(ctx, t, c, node)
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "raw", "1"
	w.send(req)
	resp := w.receive(req).(*kmsg.ApiVersionsResponse)
	out := told{epoch: resp.FinalizedFeaturesEpoch, handshake: -1}
	for _, f := range resp.FinalizedFeatures {
		if f.MinVersionLevel != f.MaxVersionLevel {
			t.Errorf("%s is finalized at %d to %d", f.Name, f.MinVersionLevel, f.MaxVersionLevel)
		}
		switch f.Name {
		case featureShare:
			out.share = f.MaxVersionLevel
		case featureTxn:
			out.txn = f.MaxVersionLevel
		case "group.version":
			out.groupVersion = f.MaxVersionLevel
		}
	}
	for _, f := range resp.SupportedFeatures {
		if f.Name == featureShare {
			out.maxShare = f.MaxVersion
		}
	}
	out.key = slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == c.cfg.Profile.Key() })
	if c.staging(int32(node)) != wire.None {
		hello := handshake(c.cfg.Profile)
		w.send(hello)
		out.handshake = w.receive(hello).(*wire.Response).ErrorCode
	}
	return out
}

// TestUpdateFeatures raises and lowers levels on a cluster that runs, in every
// version of the request, and shows what each node says afterwards.
func TestUpdateFeatures(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	for _, p := range []wire.Profile{wire.Draft95, wire.KIP93} {
		for version := range int16(3) {
			need := p.ShareVersion()
			c := start(t, Config{Profile: p, Brokers: 2})
			w := dial(ctx, t, c, 1)
			update := func(validate bool, features ...kmsg.UpdateFeaturesRequestFeatureUpdate) (code int16) {
				t.Helper()
				req := kmsg.NewPtrUpdateFeaturesRequest()
				req.Version, req.ValidateOnly = version, validate
				for _, f := range features {
					f.AllowDowngrade = f.UpgradeType > 1
					req.FeatureUpdates = append(req.FeatureUpdates, f)
				}
				w.send(req)
				resp := w.receive(req).(*kmsg.UpdateFeaturesResponse)
				if version < 2 && resp.ErrorCode == 0 && len(resp.Results) != len(features) {
					t.Errorf("version %d: results %+v", version, resp.Results)
				}
				if (resp.ErrorCode != 0) != (resp.ErrorMessage != nil) {
					t.Errorf("version %d: code %d without a reason, or a reason without a code", version, resp.ErrorCode)
				}
				return resp.ErrorCode
			}
			want := func(what string, n told) {
				t.Helper()
				n.maxShare = need
				if n.groupVersion == 0 {
					n.groupVersion = 1
				}
				for node := range 2 {
					if got := tell(ctx, t, c, node); got != n {
						t.Errorf("%v, version %d, %s: node %d tells %+v, want %+v", p, version, what, node, got, n)
					}
				}
			}
			feature := func(name string, level int16, upgradeType int8) kmsg.UpdateFeaturesRequestFeatureUpdate {
				return kmsg.UpdateFeaturesRequestFeatureUpdate{Feature: name, MaxVersionLevel: level, UpgradeType: upgradeType}
			}

			want("at first", told{epoch: 1, share: need, txn: 2, key: true, handshake: codeInvalidRequest})
			wantCode(t, "no downgrade asked for", update(false, feature(featureShare, need-1, 1)), codeInvalidUpdateVersion)
			wantCode(t, "too high", update(false, feature(featureShare, need+1, 1)), codeInvalidUpdateVersion)
			wantCode(t, "no share groups", update(false, feature(featureShare, 0, 3)), codeInvalidUpdateVersion)
			wantCode(t, "one of two", update(false, feature(featureShare, need-1, 2), feature(featureTxn, 9, 1)), codeInvalidUpdateVersion)
			if version > 0 {
				wantCode(t, "unknown type", update(false, feature(featureShare, need-1, 4)), codeInvalidRequest)
				wantCode(t, "only asked", update(true, feature(featureShare, need-1, 2)), 0)
				wantCode(t, "only asked, in vain", update(true, feature(featureShare, need+1, 1)), codeInvalidUpdateVersion)
			}
			wantCode(t, "one of kfake's beside", update(false, feature("group.version", 0, 3), feature(featureShare, need+1, 1)), codeInvalidUpdateVersion)
			want("refused", told{epoch: 1, share: need, txn: 2, key: true, handshake: codeInvalidRequest})
			wantCode(t, "lowered", update(false, feature(featureShare, need-1, 2)), 0)
			want("lowered", told{epoch: 2, share: need - 1, txn: 2, key: p == wire.Draft95, handshake: 35})
			wantCode(t, "transactions lowered, and one of kfake's", update(false, feature(featureTxn, 1, 3), feature("group.version", 0, 3)), 0)
			wantCode(t, "an unknown one beside", update(false, feature(featureShare, need, 1), feature("none.such", 1, 1)), 96)
			for node := range 2 {
				got := tell(ctx, t, c, node)
				if got.groupVersion != 0 {
					t.Errorf("%v, version %d: group.version %d after it was deleted", p, version, got.groupVersion)
				}
			}
			wantCode(t, "raised", update(false, feature(featureShare, need, 1), feature("group.version", 1, 1)), 0)
			want("raised, transactions too low", told{epoch: 4, share: need, txn: 1, key: true, handshake: 35})
			wantCode(t, "all raised", update(false, feature(featureTxn, 2, 1)), 0)
			want("all raised", told{epoch: 5, share: need, txn: 2, key: true, handshake: codeInvalidRequest})
			wantCode(t, "one of kfake's alone", update(false, feature("group.version", 0, 3)), 0)
			if got := tell(ctx, t, c, 0); got.epoch != 6 {
				t.Errorf("%v, version %d: epoch %d after six changes", p, version, got.epoch)
			}
		}
	}
}

// A stock broker has levels too, and none of them means staging.
func TestFeaturesOfStock44(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Stock44: true})
	if err := c.SetFeature(featureShare, 1); err != nil {
		t.Fatal(err)
	}
	if got := tell(ctx, t, c, 0); got.share != 1 || got.maxShare != 2 || got.key {
		t.Errorf("lowered: %+v", got)
	}
	if err := c.SetFeature(featureShare, 3); err == nil || !strings.Contains(err.Error(), "broker 0 supports levels 1 to 2") {
		t.Errorf("raised above what there is: %v", err)
	}
	if err := c.SetFeature("none.such", 1); err == nil {
		t.Error("an unknown feature was set")
	}
}

// What clients call: kadm, against nodes of different age.
func TestUpgradeOneByOne(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	for _, p := range []wire.Profile{wire.Draft95, wire.KIP93} {
		need := p.ShareVersion()
		c := start(t, Config{Profile: p, Brokers: 3, LacksStaging: []int32{0, 1, 2}, ShareVersion: need - 1})
		adm := kadm.NewClient(client(t, c))
		raise := func() error {
			got, err := adm.UpdateFeatures(ctx, false, kadm.FeatureUpdate{Feature: featureShare, MaxVersionLevel: need, UpgradeType: 1})
			if err != nil {
				return err
			}
			return got.Error()
		}
		seeds := c.Seeds()
		for node := range int32(3) {
			if err := raise(); err == nil {
				t.Fatalf("%v: raised with node %d lacking it", p, node)
			}
			w := dial(ctx, t, c, int(node))
			if err := c.UpgradeNode(node); err != nil {
				t.Fatal(err)
			}
			w.wantCut()
			if got := tell(ctx, t, c, int(node)); got.maxShare != need || got.share != need-1 || got.key != (p == wire.Draft95) || got.handshake != 35 {
				t.Errorf("%v: node %d tells %+v", p, node, got)
			}
		}
		if err := raise(); err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		for node := range 3 {
			if got := tell(ctx, t, c, node); !got.key || got.handshake != codeInvalidRequest || got.share != need {
				t.Errorf("%v: node %d tells %+v after the raise", p, node, got)
			}
		}
		if !slices.Equal(c.Seeds(), seeds) {
			t.Errorf("seeds %v, before %v", c.Seeds(), seeds)
		}
	}
}
