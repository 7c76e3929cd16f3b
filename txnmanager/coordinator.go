package txnmanager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn/internal/probe"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// coordinator speaks with the transaction coordinator of one transactional id,
// one request at a time and, where it matters, without retries that its caller
// does not see. It is used by whoever has the manager's turn.
type coordinator struct {
	client *kgo.Client
	id     string

	node int32 // offers what is needed; -1: not known
}

// answered is a broker's error code.
type answered struct {
	rpc  rpc
	code int16
}

func (a answered) Error() string { return fmt.Sprintf("%v: error code %d", a.rpc, a.code) }

// Unwrap lets a caller whose time is over see what the broker kept answering.
func (a answered) Unwrap() error { return kerr.ErrorForCode(a.code) }

// errTooOld says what a coordinator's broker lacks.
type errTooOld struct {
	node  int32
	lacks []string
}

func (e errTooOld) Error() string {
	return fmt.Sprintf("broker %d is too old for transactions of ours (KIP-890): %s", e.node, strings.Join(e.lacks, "; "))
}

// requestTimeout ends connections that do not answer: all requests of a
// coordinator's client are answered at once by a healthy broker.
const requestTimeout = 5 * time.Second

// needed are the versions of APIs without which there is no safe transaction; the
// coordinator's broker stands for all.
var needed = []struct {
	name         string
	key, version int16
}{
	{"EndTxn", 26, endTxnVersion},   // else an outcome cannot be resolved
	{"Produce", 0, 12},              // else outputs are not of a transaction of version 2
	{"InitProducerId", 22, 3},       // else a producer cannot say who it is, and fences where it should be told that it was fenced
	{"DescribeTransactions", 65, 0}, // else what alternate ids left open is not seen
}

const (
	endTxnVersion = 5
	txnVersion    = 2
)

// PinEndTxn is the kgo option that keeps EndTxn from being sent in a version
// whose outcome cannot be resolved. Every client of a transactional id has it.
func PinEndTxn() kgo.Opt {
	v := new(kversion.Versions)
	v.SetMaxKeyVersion(kmsg.EndTxn.Int16(), endTxnVersion)
	return kgo.MinVersions(v)
}

// forget makes the next request look the coordinator up, and ask it what it
// offers: whatever was in the way may have been its restart as another version.
func (c *coordinator) forget() { c.node = -1 }

// locate finds the coordinator and makes sure that it can resolve outcomes.
func (c *coordinator) locate(ctx context.Context) error {
	if c.node >= 0 {
		return nil
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = 1, c.id, []string{c.id}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return err
	}
	node, code := resp.NodeID, resp.ErrorCode
	if len(resp.Coordinators) == 1 {
		node, code = resp.Coordinators[0].NodeID, resp.Coordinators[0].ErrorCode
	}
	if code != 0 {
		return answered{rpcFindCoordinator, code}
	}
	if err := c.check(ctx, node); err != nil {
		return err
	}
	c.node = node
	return nil
}

func (c *coordinator) check(ctx context.Context, node int32) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "sharetxn", "0"
	kresp, err := c.client.Broker(int(node)).Request(ctx, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.ApiVersionsResponse)
	offers := make(map[int16]int16)
	for _, k := range resp.ApiKeys {
		offers[k.ApiKey] = k.MaxVersion
	}
	var lacks []string
	for _, need := range needed {
		if most, offered := offers[need.key]; !offered {
			lacks = append(lacks, fmt.Sprintf("no %s, version %d is needed", need.name, need.version))
		} else if most < need.version {
			lacks = append(lacks, fmt.Sprintf("%s up to version %d, %d is needed", need.name, most, need.version))
		}
	}
	level := int16(0)
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			level = f.MaxVersionLevel
		}
	}
	if level < txnVersion {
		lacks = append(lacks, fmt.Sprintf("transaction.version %d, %d is needed", level, txnVersion))
	}
	if len(lacks) > 0 {
		return errTooOld{node, lacks}
	}
	return nil
}

// initOnce asks for a producer id and epoch. With a known identity the
// coordinator refuses where another producer has taken the id since; without
// one it fences whoever has it.
func (c *coordinator) initOnce(ctx context.Context, known identity, timeout time.Duration) (identity, error) {
	if err := c.locate(ctx); err != nil {
		return unknownIdentity, err
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &c.id, int32(timeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = known.id, known.epoch
	kresp, err := c.client.Broker(int(c.node)).Request(ctx, req)
	if err != nil {
		return unknownIdentity, err
	}
	resp := kresp.(*kmsg.InitProducerIDResponse)
	switch {
	case resp.ErrorCode != 0:
		return unknownIdentity, answered{rpcInit, resp.ErrorCode}
	case resp.ProducerID < 0 || resp.ProducerEpoch < 0:
		return unknownIdentity, fmt.Errorf("InitProducerId: broker %d gave producer id %d and epoch %d", c.node, resp.ProducerID, resp.ProducerEpoch)
	}
	return identity{resp.ProducerID, resp.ProducerEpoch}, nil
}

// describeOnce asks for the state of the id.
func (c *coordinator) describeOnce(ctx context.Context) (described, error) {
	if err := c.locate(ctx); err != nil {
		return described{}, err
	}
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{c.id}
	kresp, err := c.client.Broker(int(c.node)).Request(ctx, req)
	if err != nil {
		return described{}, err
	}
	states := kresp.(*kmsg.DescribeTransactionsResponse).TransactionStates
	if len(states) != 1 || states[0].TransactionalID != c.id {
		return described{}, fmt.Errorf("DescribeTransactions: broker %d answers for %d ids, and not for %q alone", c.node, len(states), c.id)
	}
	s := &states[0]
	switch {
	case classify(rpcDescribe, s.ErrorCode) != vOK:
		return described{}, answered{rpcDescribe, s.ErrorCode}
	case s.ErrorCode != 0:
		return described{}, nil
	}
	d := described{state: s.State, of: identity{s.ProducerID, s.ProducerEpoch}}
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			d.places = append(d.places, place{t.Topic, p})
		}
	}
	return d, nil
}

// addRequest is AddPartitionsToTxn for clients: version 4 and later are for
// brokers, and have other fields (KIP-890).
type addRequest struct {
	*kmsg.AddPartitionsToTxnRequest
}

func (addRequest) MaxVersion() int16 { return 3 }

// addOnce makes partitions part of a transaction that writes nothing to them.
func (c *coordinator) addOnce(ctx context.Context, of identity, places []place) (code int16, _ error) {
	if err := c.locate(ctx); err != nil {
		return 0, err
	}
	req := addRequest{kmsg.NewPtrAddPartitionsToTxnRequest()}
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = c.id, of.id, of.epoch
	for _, t := range byTopic(places) {
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic, rt.Partitions = t.topic, t.partitions
		req.Topics = append(req.Topics, rt)
	}
	kresp, err := c.client.Broker(int(c.node)).Request(ctx, req)
	if err != nil {
		return 0, err
	}
	added := 0
	for _, t := range kresp.(*kmsg.AddPartitionsToTxnResponse).Topics {
		for _, p := range t.Partitions {
			if added++; p.ErrorCode != 0 && (code == 0 || code == kerr.OperationNotAttempted.Code) {
				code = p.ErrorCode
			}
		}
	}
	if code == 0 && added != len(places) {
		return 0, fmt.Errorf("AddPartitionsToTxn: the answer has %d partitions, %d were asked for", added, len(places))
	}
	return code, nil
}

// endOnce sends EndTxn v5. sent tells, with an error, whether it may have
// arrived; code and next are meaningful without one.
func (c *coordinator) endOnce(ctx context.Context, of identity, commit bool) (code int16, next identity, sent bool, err error) {
	if err := c.locate(ctx); err != nil {
		return 0, unknownIdentity, false, err
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = c.id, of.id, of.epoch, commit
	kresp, err := c.client.Broker(int(c.node)).Request(ctx, req)
	if err != nil {
		return 0, unknownIdentity, !unsent(err), err
	}
	resp := kresp.(*kmsg.EndTxnResponse)
	return resp.ErrorCode, identity{resp.ProducerID, resp.ProducerEpoch}, true, nil
}

// unsent tells of an error of a request that it surely never left: no
// connection could be made, or kgo holds that the broker does not speak it.
// Anything else may have arrived.
func unsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial" || probe.Behind(err)
}
