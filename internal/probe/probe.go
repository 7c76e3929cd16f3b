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
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/internal/lapse"
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

// ErrBehind: the kgo client connected before the broker spoke the key, and kgo
// asks what a broker speaks only when it connects. Nothing was sent.
var ErrBehind = errors.New("the client connected before the broker spoke the staging key")

// Behind tells whether a request failed for that reason. kgo exports no value
// for it; a test holds its wording.
func Behind(err error) bool {
	return err != nil && strings.Contains(err.Error(), "broker is too old")
}

// Prover keeps the proofs of one cluster. It is a kgo hook: a broker that
// disconnects loses its proof, so that one that comes back as another version
// is asked again. Safe for concurrent use.
type Prover struct {
	log  *slog.Logger
	want wire.Profile

	mu     sync.Mutex
	proven map[int32]int      // node -> disconnects seen when it was proven
	gone   map[int32]int      // node -> disconnects seen
	whole  map[int32]struct{} // the brokers of the last Report in which all had proof; nil: since denied
	denied int                // how often a broker denied it
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

// Whole tells whether all brokers there were had proof when they were last
// asked, and none of them was found since to speak it no more. One that joins
// later is asked before anything is sent to it.
func (p *Prover) Whole() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.whole != nil
}

// Deny takes a broker's proof back, and what rests on it: the broker does not
// speak it, or not any more.
func (p *Prover) Deny(node int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.proven, node)
	p.whole = nil
	p.denied++
}

// contradict is Deny by what a broker advertises; one that joined later
// contradicts nothing.
func (p *Prover) contradict(node int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.proven, node)
	if _, ours := p.whole[node]; ours {
		p.whole = nil
		p.denied++
	}
}

func (p *Prover) denials() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.denied
}

// keepWhole notes that all of rows had proof, unless one denied it meanwhile.
func (p *Prover) keepWhole(rows []Row, denied int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.denied != denied {
		return
	}
	p.whole = make(map[int32]struct{}, len(rows))
	for _, r := range rows {
		p.whole[r.NodeID] = struct{}{}
	}
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
// or means something else by the key. ErrBehind: ask again with a new client.
func (p *Prover) Report(ctx context.Context, cl *kgo.Client) (Report, error) {
	denied := p.denials()
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
			p.contradict(r.NodeID)
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
			if err := p.proof(ctx, cl, r.NodeID); err != nil {
				if ctx.Err() != nil || errors.Is(err, ErrBehind) || errors.Is(err, errNotAsked) {
					return Report{}, err
				}
				if errors.Is(err, kerr.UnsupportedVersion) {
					p.Deny(r.NodeID)
				}
				r.Reason, rep.Staging = "handshake failed: "+err.Error(), wire.None
				continue
			}
			p.keep(r.NodeID, gone[r.NodeID])
		}
		r.Proven = true
	}
	if rep.Staging != wire.None {
		p.keepWhole(rep.Brokers, denied)
	}
	return rep, nil
}

// Prove asks one broker unless its proof stands. ErrBehind: ask again with a new
// client.
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
	if err := p.proof(ctx, cl, node); errors.Is(err, ErrBehind) || errors.Is(err, errNotAsked) {
		return wire.None, err
	} else if err != nil {
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

// APIVersions asks one broker what it offers and which features are finalized.
func APIVersions(ctx context.Context, cl *kgo.Client, node int32) (*kmsg.ApiVersionsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "sharetxn", "0"
	kresp, err := cl.Broker(int(node)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("ApiVersions of broker %d: %w", node, err)
	}
	resp := kresp.(*kmsg.ApiVersionsResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, fmt.Errorf("ApiVersions of broker %d: %w", node, err)
	}
	return resp, nil
}

// advertised says what is missing of the profile at a broker.
func (p *Prover) advertised(ctx context.Context, cl *kgo.Client, node int32) (Row, error) {
	resp, err := APIVersions(ctx, cl, node)
	if err != nil {
		return Row{}, err
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

// handshakes is how often a handshake that was cut is repeated: a broker that
// goes down cuts it too, but not again and again.
const handshakes = 3

// errNotAsked: the broker cannot be reached, so nothing is known of it.
var errNotAsked = errors.New("broker not reached")

// proof is the handshake, repeated where the connection was cut while the broker
// still advertises the profile.
func (p *Prover) proof(ctx context.Context, cl *kgo.Client, node int32) error {
	for attempt := 1; ; attempt++ {
		err := p.handshake(ctx, cl, node)
		if err == nil || attempt == handshakes || !cut(err) {
			return err
		}
		if !lapse.For(ctx, time.Duration(attempt)*100*time.Millisecond) {
			return err
		}
		row, askErr := p.advertised(ctx, cl, node)
		if askErr != nil {
			return fmt.Errorf("%w: %w, after %w", errNotAsked, askErr, err)
		}
		if row.Reason != "" {
			return errors.New(row.Reason)
		}
	}
}

// cut tells of a connection that ended without an answer.
func cut(err error) bool {
	_, isNet := errors.AsType[net.Error](err)
	return isNet || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || kgo.IsRetryableBrokerErr(err)
}

// handshake sends the profile's request with no topics and no transactional
// id. A broker that speaks it answers in its exact form, whatever the code; one
// that means something else by the key cuts the connection or answers
// something that does not decode to the last byte.
func (p *Prover) handshake(ctx context.Context, cl *kgo.Client, node int32) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	kresp, err := cl.Broker(int(node)).Request(ctx, wire.NewHandshake(p.want))
	if Behind(err) {
		return fmt.Errorf("%w: broker %d: %w", ErrBehind, node, err)
	} else if err != nil {
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
