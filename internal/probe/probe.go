// Package probe finds out, and proves, whether brokers speak
// TxnShareAcknowledge (design 4.5). Key numbers and feature levels alone prove
// nothing: a stock Kafka 4.4 uses both for something else. It knows no type of
// root.
package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Report is what was found; Staging is None unless every broker proved it.
type Report struct {
	ClusterID          string
	Want               wire.Profile // what was looked for
	TransactionVersion int16        // lowest finalized level any broker reports; -1: none
	ShareVersion       int16        // likewise
	Staging            wire.Profile
	Brokers            []Row // ascending by node
}

// Row is one broker.
type Row struct {
	NodeID   int32
	Key      int16
	MaxVer   int16 // -1: key not advertised
	Proven   bool
	Reason   string // why not proven; empty if it is
	features features
}

type features struct{ share, transaction int16 }

// ErrNotProven is Prove's answer where a broker does not speak the profile;
// ask Report for the whole picture.
var ErrNotProven = errors.New("staging not proven")

// Prover keeps the proofs of one cluster. It is a kgo hook: a broker that
// disconnects loses its proof, so that one that comes back as another version
// is asked again. Safe for concurrent use.
type Prover struct {
	log  *slog.Logger
	want wire.Profile

	mu     sync.Mutex
	proven map[int32]int // node -> disconnects seen when it was proven
	gone   map[int32]int // node -> disconnects seen
}

// New makes a Prover without proofs. Looked for is want, or where that is None
// Draft95: KIP93 is asked for only by name.
func New(log *slog.Logger, want wire.Profile) *Prover {
	if want == wire.None {
		want = wire.Draft95
	}
	return &Prover{log: log, want: want, proven: make(map[int32]int), gone: make(map[int32]int)}
}

var _ kgo.HookBrokerDisconnect = (*Prover)(nil)

// OnBrokerDisconnect takes the broker's proof back.
func (p *Prover) OnBrokerDisconnect(meta kgo.BrokerMetadata, _ net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone[meta.NodeID]++
	delete(p.proven, meta.NodeID)
}

func (p *Prover) has(node int32) (proven bool, gone int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, proven = p.proven[node]
	return proven, p.gone[node]
}

// keep notes a proof unless the broker disconnected while it was being given.
func (p *Prover) keep(node int32, gone int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone[node] == gone {
		p.proven[node] = gone
	}
}

// Report asks every broker of the metadata. Only if all advertise the profile
// is the handshake sent, so that not one byte goes to a cluster that is mixed
// or means something else by the key.
func (p *Prover) Report(ctx context.Context, cl *kgo.Client) (Report, error) {
	meta, err := metadata(ctx, cl)
	if err != nil {
		return Report{}, err
	}
	rep := Report{Want: p.want, TransactionVersion: -1, ShareVersion: -1, Staging: p.want}
	if meta.ClusterID != nil {
		rep.ClusterID = *meta.ClusterID
	}
	gone := make(map[int32]int)
	for _, b := range meta.Brokers {
		_, gone[b.NodeID] = p.has(b.NodeID)
		row, err := p.advertised(ctx, cl, b.NodeID)
		if err != nil {
			return Report{}, err
		}
		rep.Brokers = append(rep.Brokers, row)
	}
	if len(rep.Brokers) == 0 {
		return Report{}, errors.New("metadata names no broker")
	}
	slices.SortFunc(rep.Brokers, func(a, b Row) int { return cmp.Compare(a.NodeID, b.NodeID) })
	for i, r := range rep.Brokers {
		if i == 0 || r.features.share < rep.ShareVersion {
			rep.ShareVersion = r.features.share
		}
		if i == 0 || r.features.transaction < rep.TransactionVersion {
			rep.TransactionVersion = r.features.transaction
		}
		if r.Reason != "" {
			rep.Staging = wire.None
		}
	}
	if rep.Staging == wire.None {
		for i := range rep.Brokers {
			if rep.Brokers[i].Reason == "" {
				rep.Brokers[i].Reason = fmt.Sprintf("advertises key %d; not asked, since another broker does not", p.want.Key())
			}
		}
		return rep, nil
	}
	for i := range rep.Brokers {
		r := &rep.Brokers[i]
		if proven, _ := p.has(r.NodeID); !proven {
			if err := p.handshake(ctx, cl, r.NodeID); err != nil {
				if ctx.Err() != nil {
					return Report{}, err
				}
				r.Reason, rep.Staging = "handshake failed: "+err.Error(), wire.None
				continue
			}
			p.keep(r.NodeID, gone[r.NodeID])
		}
		r.Proven = true
	}
	return rep, nil
}

// Prove asks one broker unless its proof stands.
func (p *Prover) Prove(ctx context.Context, cl *kgo.Client, node int32) (wire.Profile, error) {
	proven, gone := p.has(node)
	if proven {
		return p.want, nil
	}
	row, err := p.advertised(ctx, cl, node)
	if err != nil {
		return wire.None, err
	}
	if row.Reason != "" {
		return wire.None, fmt.Errorf("%w: broker %d: %s", ErrNotProven, node, row.Reason)
	}
	if err := p.handshake(ctx, cl, node); err != nil {
		return wire.None, fmt.Errorf("%w: broker %d: handshake: %w", ErrNotProven, node, err)
	}
	p.keep(node, gone)
	return p.want, nil
}

// stockKey is an API that Kafka 4.4 has and no broker of the KIP's text: where it
// is advertised, key 93 means StreamsGroupTopologyDescriptionUpdate.
const stockKey = 94

// askTimeout bounds one question to one broker where the caller's context does
// not: a broker that accepts connections and says nothing must not hang a start.
const askTimeout = 10 * time.Second

func metadata(ctx context.Context, cl *kgo.Client) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	return req.RequestWith(ctx, cl)
}

// advertised asks for ApiVersions and says what is missing of the profile.
func (p *Prover) advertised(ctx context.Context, cl *kgo.Client, node int32) (Row, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "sharetxn", "0"
	kresp, err := cl.Broker(int(node)).RetriableRequest(ctx, req)
	if err != nil {
		return Row{}, fmt.Errorf("ApiVersions of broker %d: %w", node, err)
	}
	resp := kresp.(*kmsg.ApiVersionsResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return Row{}, fmt.Errorf("ApiVersions of broker %d: %w", node, err)
	}
	row := Row{NodeID: node, Key: p.want.Key(), MaxVer: -1, features: features{-1, -1}}
	stock := false
	for _, k := range resp.ApiKeys {
		switch k.ApiKey {
		case p.want.Key():
			row.MaxVer = k.MaxVersion
		case stockKey:
			stock = true
		}
	}
	for _, f := range resp.FinalizedFeatures {
		switch f.Name {
		case "share.version":
			row.features.share = f.MaxVersionLevel
		case "transaction.version":
			row.features.transaction = f.MaxVersionLevel
		}
	}
	switch {
	case row.MaxVer < 0:
		row.Reason = fmt.Sprintf("does not advertise key %d", p.want.Key())
	case p.want == wire.KIP93 && stock:
		row.Reason = fmt.Sprintf("advertises key %d, so its key %d is that of Kafka 4.4 and not TxnShareAcknowledge", stockKey, p.want.Key())
	case row.features.share < p.want.ShareVersion():
		row.Reason = fmt.Sprintf("share.version %d, want %d", row.features.share, p.want.ShareVersion())
	case row.features.transaction < 2:
		row.Reason = fmt.Sprintf("transaction.version %d, want 2", row.features.transaction)
	}
	return row, nil
}

// handshake sends the profile's request with no topics and no transactional
// id. A broker that speaks it answers in its exact form, whatever the code; one
// that means something else by the key cuts the connection or answers
// something that does not decode to the last byte.
func (p *Prover) handshake(ctx context.Context, cl *kgo.Client, node int32) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	kresp, err := cl.Broker(int(node)).Request(ctx, wire.NewHandshake(p.want))
	if err != nil {
		return err
	}
	resp, ok := kresp.(*wire.Response)
	if !ok {
		return fmt.Errorf("answer is a %T", kresp)
	}
	switch {
	case resp.ErrorCode == kerr.UnsupportedVersion.Code:
		return kerr.UnsupportedVersion
	case len(resp.Topics) > 0:
		return fmt.Errorf("answer names %d topics where none was sent", len(resp.Topics))
	}
	return nil
}
