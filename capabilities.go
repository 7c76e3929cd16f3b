package sharetxn

import (
	"context"

	"github.com/sharetxn/sharetxn/internal/probe"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// Profile is one way to speak TxnShareAcknowledge. The zero value chooses
// ProfileAuto where a profile is asked for, and means none where one was found.
type Profile struct{ wire wire.Profile }

var (
	// ProfileAuto is ProfileDraft95 where every broker proves it, otherwise
	// none.
	ProfileAuto = Profile{}
	// ProfileDraft95 is the current draft of KIP-1289: key 95, share.version 3.
	// Staged acknowledgements are durable; an abort makes the records available
	// to any member.
	ProfileDraft95 = Profile{wire.Draft95}
	// ProfileKIP93 is the text of KIP-1289: key 93, share.version 2. Only ever by
	// name, since stock brokers use both for something else. By its own words a
	// record that is staged while its broker or leader is lost, or while its lock
	// ends, can be delivered, and its outputs published, twice.
	ProfileKIP93 = Profile{wire.KIP93}
)

// String is "draft95", "kip93", or "none" for the zero value.
func (p Profile) String() string { return p.wire.String() }

// WithProfile chooses how TxnShareAcknowledge is spoken. Default ProfileAuto.
func WithProfile(p Profile) Opt {
	return optFunc(func(c *config) { c.profile = p })
}

// Capabilities is a snapshot of what the brokers offer and have proven.
type Capabilities struct {
	ClusterID          string
	TransactionVersion int16   // lowest finalized level that a broker reports; 2 is needed; -1: none
	ShareVersion       int16   // likewise
	WantKey            int16   // the API key that was looked for
	WantShareVersion   int16   // the share.version that was looked for
	Staging            Profile // proven on every broker; zero if not
	Brokers            []BrokerCapabilities
}

// BrokerCapabilities is one broker's row, ascending by NodeID.
type BrokerCapabilities struct {
	NodeID int32
	Key    int16 // the staging key that was looked for
	MaxVer int16 // its highest version; -1: not advertised
	Proven bool
	Reason string // why not proven; empty if it is
}

// SupportsStaging tells whether acknowledgements can be staged (KIP-1289).
func (c Capabilities) SupportsStaging() bool { return c.Staging != Profile{} }

// Capabilities asks every broker what it offers and, where all offer staging,
// proves it by a handshake. Proofs are kept until a broker disconnects. A
// cluster without staging is not an error. An error means that a broker could
// not be asked.
func (c *Cluster) Capabilities(ctx context.Context) (Capabilities, error) {
	rep, err := c.core.Capabilities(ctx)
	if err != nil {
		return Capabilities{}, connError("Capabilities", err)
	}
	c.mu.Lock()
	c.id = rep.ClusterID
	c.mu.Unlock()
	return capabilities(rep), nil
}

func capabilities(rep probe.Report) Capabilities {
	caps := Capabilities{
		ClusterID:          rep.ClusterID,
		TransactionVersion: rep.TransactionVersion,
		ShareVersion:       rep.ShareVersion,
		WantKey:            rep.Want.Key(),
		WantShareVersion:   rep.Want.ShareVersion(),
		Staging:            Profile{rep.Staging},
	}
	for _, r := range rep.Brokers {
		caps.Brokers = append(caps.Brokers, BrokerCapabilities{NodeID: r.NodeID, Key: r.Key, MaxVer: r.MaxVer, Proven: r.Proven, Reason: r.Reason})
	}
	return caps
}
