package sharetxn

import (
	"context"

	"github.com/sharetxn/sharetxn/internal/probe"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// Profile is one way to speak TxnShareAcknowledge. The zero value means none.
type Profile struct{ name string }

// ProfileDraft95 is the current draft of KIP-1289: key 95, share.version 3.
var ProfileDraft95 = Profile{"draft95"}

func (p Profile) String() string {
	if p.name == "" {
		return "none"
	}
	return p.name
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
		WantKey:            wire.Draft95.Key(),
		WantShareVersion:   wire.Draft95.ShareVersion(),
	}
	if rep.Staging == wire.Draft95 {
		caps.Staging = ProfileDraft95
	}
	for _, r := range rep.Brokers {
		caps.Brokers = append(caps.Brokers, BrokerCapabilities{NodeID: r.NodeID, Key: r.Key, MaxVer: r.MaxVer, Proven: r.Proven, Reason: r.Reason})
	}
	return caps
}
