package broker

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/broker/front"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// API keys that do not go to kfake as they are.
const (
	keyProduce            = 0
	keyMetadata           = 3
	keyListGroups         = 16
	keyFindCoordinator    = 10
	keyApiVersions        = 18
	keyCreateTopics       = 19
	keyInitProducerID     = 22
	keyAddPartitionsToTxn = 24
	keyAddOffsetsToTxn    = 25
	keyEndTxn             = 26
	keyTxnOffsetCommit    = 28
	keyDescribeConfigs    = 32
	keyDeleteGroups       = 42
	keyAlterConfigs       = 44
	keyUpdateFeatures     = 57
	keyDescribeProducers  = 61
	keyDescribeTxns       = 65
	keyListTxns           = 66
	keyListConfigs        = 74
	keyDescribeTopics     = 75
	keyShareHeartbeat     = 76
	keyShareDescribe      = 77
	keyShareFetch         = 78
	keyShareAck           = 79
	keyDescribeShareOffs  = 90
	keyAlterShareOffs     = 91
	keyDeleteShareOffs    = 92
	keyStreamsTopology    = 93 // of stock Kafka 4.4; in profile KIP93 it means staging
	keyUnregister         = 94 // of stock Kafka 4.4
)

// ConnClosed implements front.Handler.
func (c *Cluster) ConnClosed(conn *front.Conn) {
	if c.die.Err() == nil {
		c.engine.ConnClosed(conn.Node, conn.ID)
	}
}

func (c *Cluster) handle(ctx context.Context, conn *front.Conn, q frame.Request, act Action) ([]byte, error) {
	reply := func(resp kmsg.Response) ([]byte, error) {
		if act.After != nil {
			act.After(resp)
		}
		return frame.AppendResponse(nil, q.CorrelationID, resp), nil
	}
	staging := c.staging(conn.Node)
	if low, high := c.offered(q.Key); q.Key != keyApiVersions && (q.Version < low || q.Version > high) {
		return nil, fmt.Errorf("key %d: version %d is not offered", q.Key, q.Version)
	}
	switch q.Key {
	case keyApiVersions:
		return c.apiVersions(conn, q)
	case keyProduce:
		return c.produce(ctx, conn, q, reply)
	case keyListConfigs:
		return c.listConfigResources(conn, q)
	case keyDescribeTopics:
		return c.describeTopics(conn, q)
	case keyFindCoordinator, keyInitProducerID, keyAddPartitionsToTxn, keyAddOffsetsToTxn, keyEndTxn, keyTxnOffsetCommit, keyDescribeProducers, keyDescribeTxns, keyListTxns,
		keyShareHeartbeat, keyShareDescribe, keyShareFetch, keyShareAck, keyDescribeShareOffs, keyAlterShareOffs, keyDeleteShareOffs,
		keyListGroups, keyDeleteGroups, keyDescribeConfigs, keyAlterConfigs, keyUpdateFeatures, keyCreateTopics,
		keyMetadata, keyJoinGroup, keyConsumerHeartbeat, keyOffsetCommit, keyAlterAssignments, keyDeleteRecords:
	default:
		switch {
		case staging != wire.None && q.Key == staging.Key():
		case q.Key == keyStreamsTopology, q.Key == keyUnregister:
			return nil, fmt.Errorf("key %d is not handled here", q.Key)
		case q.Key < 0 || q.Key > kmsg.MaxKey:
			return nil, fmt.Errorf("unknown key %d", q.Key) // as Kafka: no answer, the connection closes
		default:
			return conn.Forward(q.Raw, true)
		}
	}
	m, err := q.Message(staging)
	if err != nil {
		return nil, err
	}
	resp, err := c.own(ctx, conn, q, m)
	switch {
	case errors.Is(err, errKfake):
		return conn.Forward(q.Raw, true)
	case err != nil:
		return nil, err
	}
	return reply(resp)
}

// offered limits the versions of a key to less than kfake has; none is left
// where high is below low.
func (c *Cluster) offered(key int16) (low, high int16) {
	high = math.MaxInt16
	switch key {
	case keyEndTxn:
		low = 5 // package txn: nothing older can be resolved
	case keyAddPartitionsToTxn:
		high = 3 // newer ones are between brokers
	case keyShareHeartbeat, keyShareDescribe, keyShareFetch, keyShareAck:
		low = 1 // 0 was early access; Kafka 4.1 removed it
	}
	if less, ok := c.cfg.MaxVersions[key]; ok {
		high = min(high, less)
		if key == keyEndTxn {
			low = min(low, max(high, 0)) // offered as old brokers do, answered by nobody
		}
	}
	return low, high
}

// errKfake is what own answers for a request that is kfake's.
var errKfake = errors.New("for kfake")

// own answers what this package and those below it answer.
func (c *Cluster) own(ctx context.Context, conn *front.Conn, q frame.Request, m kmsg.Request) (kmsg.Response, error) {
	node := conn.Node
	if resp := c.withoutTopics(m); resp != nil {
		return resp, nil
	}
	switch m := m.(type) {
	case *kmsg.FindCoordinatorRequest:
		return c.findCoordinator(m)
	case *wire.Request:
		return c.engine.Stage(ctx, c.shareConn(conn, q), m), nil
	case *kmsg.InitProducerIDRequest:
		if m.TransactionalID == nil {
			return nil, errKfake
		}
		return c.txns.InitProducerID(ctx, node, m), nil
	case *kmsg.EndTxnRequest:
		return c.txns.EndTxn(ctx, node, m), nil
	case *kmsg.AddPartitionsToTxnRequest:
		return c.txns.AddPartitionsToTxn(ctx, node, m), nil
	case *kmsg.AddOffsetsToTxnRequest:
		return c.txns.AddOffsetsToTxn(ctx, node, m), nil
	case *kmsg.TxnOffsetCommitRequest:
		return c.txns.TxnOffsetCommit(ctx, node, m)
	case *kmsg.DescribeProducersRequest:
		return c.describeProducers(node, m), nil
	case *kmsg.DescribeTransactionsRequest:
		return c.txns.DescribeTransactions(node, m), nil
	case *kmsg.ListTransactionsRequest:
		return c.txns.ListTransactions(node, m), nil
	case *kmsg.MetadataRequest:
		c.autoCreate(m)
		return nil, errKfake
	case *kmsg.CreateTopicsRequest:
		return c.createTopics(ctx, conn, m)
	case *kmsg.DescribeConfigsRequest:
		return c.describeConfigs(ctx, conn, q, m)
	case *kmsg.IncrementalAlterConfigsRequest:
		return c.alterConfigs(ctx, conn, m)
	case *kmsg.UpdateFeaturesRequest:
		return c.updateFeatures(ctx, conn, m)
	case *kmsg.ListGroupsRequest:
		return c.listGroups(ctx, conn, m)
	case *kmsg.DeleteGroupsRequest:
		return c.deleteGroups(ctx, conn, m)
	case *kmsg.JoinGroupRequest, *kmsg.ConsumerGroupHeartbeatRequest, *kmsg.OffsetCommitRequest:
		return c.foreignGroup(conn, m)
	case *kmsg.AlterPartitionAssignmentsRequest:
		return c.alterAssignments(ctx, conn, m)
	case *kmsg.DeleteRecordsRequest:
		return c.deleteRecords(ctx, conn, m)
	default:
		return c.engine.Handle(ctx, c.shareConn(conn, q), m), nil
	}
}

func (c *Cluster) shareConn(conn *front.Conn, q frame.Request) share.Conn {
	return share.Conn{ID: conn.ID, Node: conn.Node, ClientID: q.ClientID, Host: conn.Host}
}

// apiVersions patches kfake's answer to what this cluster is.
func (c *Cluster) apiVersions(conn *front.Conn, q frame.Request) ([]byte, error) {
	raw, err := conn.Forward(q.Raw, true)
	if err != nil {
		return nil, err
	}
	version := q.Version
	if frame.ErrorCode(raw) == 35 { // UNSUPPORTED_VERSION is always answered in version 0
		version = 0
	}
	kresp, err := frame.ReadResponse(raw, &kmsg.ApiVersionsRequest{Version: version})
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.ApiVersionsResponse)
	c.offer(conn.Node, resp)
	return frame.AppendResponse(nil, q.CorrelationID, resp), nil
}

func (c *Cluster) offer(node int32, resp *kmsg.ApiVersionsResponse) {
	keep := resp.ApiKeys[:0]
	for _, k := range resp.ApiKeys {
		if k.ApiKey == keyStreamsTopology || k.ApiKey == keyUnregister {
			continue
		}
		low, high := c.offered(k.ApiKey)
		k.MinVersion, k.MaxVersion = max(k.MinVersion, low), min(k.MaxVersion, high)
		if k.MinVersion <= k.MaxVersion {
			keep = append(keep, k)
		}
	}
	resp.ApiKeys = keep
	add := func(key int16) {
		if _, high := c.offered(key); high >= 0 {
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key})
		}
	}
	if c.cfg.Stock44 {
		add(keyStreamsTopology)
		add(keyUnregister)
	}
	if c.offers(node) {
		add(c.cfg.Profile.Key())
	}
	c.patchFeatures(node, resp)
}
