package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sharetxn/sharetxn/internal/broker/front"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The features (KIP-584) that decide whether there is staging. The others are
// kfake's.
const (
	featureShare = "share.version"
	featureTxn   = "transaction.version"
)

// stagingTxnVersion is what staging needs of transaction.version (KIP-1289:
// TV2 only).
const stagingTxnVersion = 2

// features are the finalized levels of the cluster.
type features struct {
	mu     sync.Mutex
	levels levels
	epoch  int64 // of the last change (KIP-584); kfake's count as well
}

type levels struct{ share, txn int16 }

func (l *levels) of(name string) *int16 {
	switch name {
	case featureShare:
		return &l.share
	case featureTxn:
		return &l.txn
	}
	return nil
}

func (f *features) now() (levels, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.levels, f.epoch
}

// staging tells whether these levels let TxnShareAcknowledge work.
func (l levels) staging(p wire.Profile) bool {
	return p != wire.None && l.share >= p.ShareVersion() && l.txn >= stagingTxnVersion
}

// levelRange is what a broker supports of a feature.
type levelRange struct{ low, high int16 }

// supports is what a node's software supports. Share groups are always there, so
// share.version begins at 1.
func (c *Cluster) supports(node int32, feature string) levelRange {
	if feature == featureTxn {
		return levelRange{0, stagingTxnVersion}
	}
	switch {
	case c.cfg.Stock44:
		return levelRange{1, stockShareVersion}
	case c.staging(node) == wire.None:
		return levelRange{1, c.cfg.Profile.ShareVersion() - 1}
	}
	return levelRange{1, c.cfg.Profile.ShareVersion()}
}

// stockShareVersion is Kafka 4.4's; level 2 is dead-letter queues there.
const stockShareVersion = 2

// UpgradeType of UpdateFeatures.
const (
	upgradeOnly     int8 = 1
	unsafeDowngrade int8 = 3
)

// decideLevel says whether a level may change from one to another; why is empty
// if it may, else it says what Kafka's controller answers INVALID_UPDATE_VERSION
// to. supported has each broker's range.
func decideLevel(from, to int16, upgradeType int8, supported []levelRange) (why string) {
	for node, r := range supported {
		if to < r.low || to > r.high {
			return fmt.Sprintf("broker %d supports levels %d to %d", node, r.low, r.high)
		}
	}
	switch {
	case to < from && upgradeType == upgradeOnly:
		return "a downgrade must be asked for as one"
	case to > from && upgradeType != upgradeOnly:
		return "not a downgrade"
	}
	return ""
}

// offers tells whether a node advertises the staging key. By the KIP text it
// does so only when share.version is there; the draft says nothing, so its key
// is there with the software, as Kafka's other keys are, and the level is told
// beside it. Whoever asks below the level is answered UNSUPPORTED_VERSION.
func (c *Cluster) offers(node int32) bool {
	p := c.staging(node)
	now, _ := c.features.now()
	return p == wire.Draft95 || (p == wire.KIP93 && now.share >= p.ShareVersion())
}

// updateFeatures answers UpdateFeatures. A request is all or nothing and its
// error stands at the top in every version. A level that staging needs is not
// lowered while records are staged, whichever kind of downgrade is asked for
// (KIP-1289, Downgrade).
func (c *Cluster) updateFeatures(ctx context.Context, conn *front.Conn, req *kmsg.UpdateFeaturesRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	fail := func(code int16, feature, why string) (kmsg.Response, error) {
		message := fmt.Sprintf("%s: %s", feature, why)
		resp.ErrorCode, resp.ErrorMessage, resp.Results = code, &message, nil
		return resp, nil
	}
	ours, others := part(req.FeatureUpdates, func(u kmsg.UpdateFeaturesRequestFeatureUpdate) bool {
		return new(levels).of(u.Feature) != nil
	})
	for i := range ours {
		u := &ours[i]
		if req.Version == 0 {
			u.UpgradeType = upgradeOnly
			if u.AllowDowngrade {
				u.UpgradeType = upgradeOnly + 1
			}
		}
		if u.UpgradeType < upgradeOnly || u.UpgradeType > unsafeDowngrade {
			return fail(codeInvalidRequest, u.Feature, fmt.Sprintf("there is no upgrade type %d", u.UpgradeType))
		}
	}
	if feature, why := c.setLevels(ours, true); why != "" {
		return fail(codeInvalidUpdateVersion, feature, why)
	}
	if len(others) > 0 {
		rest := *req
		rest.FeatureUpdates = others
		kresp, err := c.broker(conn.Node).Do(ctx, &rest)
		if err != nil {
			return nil, err
		}
		resp = kresp.(*kmsg.UpdateFeaturesResponse)
		if resp.ErrorCode != 0 {
			return resp, nil
		}
		for _, r := range resp.Results { // below version 2 kfake tells its errors here
			if r.ErrorCode != 0 {
				return fail(r.ErrorCode, r.Feature, "not changed")
			}
		}
	}
	if !req.ValidateOnly {
		if feature, why := c.setLevels(ours, false); why != "" {
			return fail(codeInvalidUpdateVersion, feature, why)
		}
	}
	for _, u := range ours {
		r := kmsg.NewUpdateFeaturesResponseResult()
		r.Feature = u.Feature
		resp.Results = append(resp.Results, r)
	}
	return resp, nil
}

// setLevels changes all levels or none, and tells the engine; why says what
// stands against it. With try nothing changes.
func (c *Cluster) setLevels(updates []kmsg.UpdateFeaturesRequestFeatureUpdate, try bool) (feature, why string) {
	c.features.mu.Lock()
	defer c.features.mu.Unlock()
	if len(updates) == 0 {
		if !try {
			c.features.epoch++ // kfake changed one of its own
			c.keepLevels()
		}
		return "", ""
	}
	next := c.features.levels
	for _, u := range updates {
		var supported []levelRange
		for node := range c.nodes() {
			supported = append(supported, c.supports(int32(node), u.Feature))
		}
		level := next.of(u.Feature)
		if why := decideLevel(*level, u.MaxVersionLevel, u.UpgradeType, supported); why != "" {
			return u.Feature, why
		}
		*level = u.MaxVersionLevel
	}
	on := !c.cfg.Stock44 && next.staging(c.cfg.Profile)
	if try {
		if !on && c.engine.Staged() {
			return updates[0].Feature, whyStaged
		}
		return "", ""
	}
	if !c.engine.SetStaging(on) {
		return updates[0].Feature, whyStaged
	}
	c.features.levels = next
	c.features.epoch++
	c.keepLevels()
	return "", ""
}

const whyStaged = "records are staged in transactions"

// SetFeature is what UpdateFeatures does to share.version or
// transaction.version, in whichever direction.
func (c *Cluster) SetFeature(name string, level int16) error {
	now, _ := c.features.now()
	from := now.of(name)
	if from == nil {
		return fmt.Errorf("broker: feature %s is not one that can be set", name)
	}
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType = name, level, upgradeOnly
	if level < *from {
		u.UpgradeType = upgradeOnly + 1
	}
	if _, why := c.setLevels([]kmsg.UpdateFeaturesRequestFeatureUpdate{u}, false); why != "" {
		return fmt.Errorf("broker: %s %d: %s", name, level, why)
	}
	return nil
}

// patchFeatures puts the levels into an answer to ApiVersions.
func (c *Cluster) patchFeatures(node int32, resp *kmsg.ApiVersionsResponse) {
	now, epoch := c.features.now()
	patch := func(name string) {
		r := c.supports(node, name)
		resp.SupportedFeatures = slices.DeleteFunc(resp.SupportedFeatures, func(f kmsg.ApiVersionsResponseSupportedFeature) bool { return f.Name == name })
		supported := kmsg.NewApiVersionsResponseSupportedFeature()
		supported.Name, supported.MinVersion, supported.MaxVersion = name, r.low, r.high
		resp.SupportedFeatures = append(resp.SupportedFeatures, supported)

		resp.FinalizedFeatures = slices.DeleteFunc(resp.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool { return f.Name == name })
		if level := *now.of(name); level > 0 { // level 0 is none
			finalized := kmsg.NewApiVersionsResponseFinalizedFeature()
			finalized.Name, finalized.MinVersionLevel, finalized.MaxVersionLevel = name, level, level
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, finalized)
		}
	}
	patch(featureShare)
	patch(featureTxn)
	resp.FinalizedFeaturesEpoch = epoch
}
