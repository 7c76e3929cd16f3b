package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/broker/front"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// API keys that do not go to kfake as they are.
const (
	keyProduce            = 0
	keyListGroups         = 16
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
	keyDescribeTxns       = 65
	keyListTxns           = 66
	keyShareHeartbeat     = 76
	keyShareDescribe      = 77
	keyShareFetch         = 78
	keyShareAck           = 79
	keyDescribeShareOffs  = 90
	keyAlterShareOffs     = 91
	keyDeleteShareOffs    = 92
	keyStreamsTopology    = 93 // of stock Kafka 4.4; key of profile KIP93
	keyUnregister         = 94 // of stock Kafka 4.4
)

// errLost cuts a connection on purpose.
var errLost = errors.New("lost on purpose")

// Serve implements front.Handler.
func (c *Cluster) Serve(ctx context.Context, conn *front.Conn, q frame.Request) ([]byte, error) {
	act := c.note(conn.Node, conn.ID, q)
	if err := act.wait(ctx); err != nil {
		return nil, err
	}
	if act.LoseRequest {
		return nil, errLost
	}
	if act.Answer != nil {
		return frame.AppendResponse(nil, q.CorrelationID, act.Answer), nil
	}
	out, err := c.handle(ctx, conn, q, act)
	if err == nil && act.LoseAnswer {
		err = errLost
	}
	return out, err
}

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
	switch q.Key {
	case keyApiVersions:
		return c.apiVersions(conn, q)
	case keyProduce:
		return c.produce(ctx, conn, q, reply)
	case keyStreamsTopology, keyUnregister:
		return nil, fmt.Errorf("key %d is not handled here", q.Key)
	case keyInitProducerID, keyAddPartitionsToTxn, keyAddOffsetsToTxn, keyEndTxn, keyTxnOffsetCommit, keyDescribeTxns, keyListTxns,
		keyShareHeartbeat, keyShareDescribe, keyShareFetch, keyShareAck, keyDescribeShareOffs, keyAlterShareOffs, keyDeleteShareOffs,
		keyListGroups, keyDeleteGroups, keyDescribeConfigs, keyAlterConfigs, keyCreateTopics:
	default:
		if q.Key != staging.Key() && (q.Key < 0 || q.Key > kmsg.MaxKey) {
			return nil, fmt.Errorf("unknown key %d", q.Key) // as Kafka: no answer, the connection closes
		}
		if q.Key != staging.Key() {
			return conn.Forward(q.Raw, true)
		}
	}
	m, err := q.Message(staging)
	if err != nil {
		return nil, err
	}
	resp := c.own(ctx, conn, q, m)
	if resp == nil {
		return conn.Forward(q.Raw, true)
	}
	return reply(resp)
}

// own answers what this package and those below it answer; nil means that
// kfake does.
func (c *Cluster) own(ctx context.Context, conn *front.Conn, q frame.Request, m kmsg.Request) kmsg.Response {
	node := conn.Node
	switch m := m.(type) {
	case *wire.Request:
		return c.engine.Stage(ctx, c.shareConn(conn, q), m)
	case *kmsg.InitProducerIDRequest:
		if m.TransactionalID == nil {
			return nil
		}
		return c.txns.InitProducerID(ctx, node, m)
	case *kmsg.EndTxnRequest:
		return c.txns.EndTxn(ctx, node, m)
	case *kmsg.AddPartitionsToTxnRequest:
		return c.txns.AddPartitionsToTxn(ctx, node, m)
	case *kmsg.AddOffsetsToTxnRequest:
		return c.txns.AddOffsetsToTxn(ctx, node, m)
	case *kmsg.TxnOffsetCommitRequest:
		return c.txns.TxnOffsetCommit(ctx, m)
	case *kmsg.DescribeTransactionsRequest:
		return c.txns.DescribeTransactions(node, m)
	case *kmsg.ListTransactionsRequest:
		return c.txns.ListTransactions(node, m)
	case *kmsg.CreateTopicsRequest:
		return c.createTopics(ctx, conn, m)
	case *kmsg.DescribeConfigsRequest:
		return c.describeConfigs(ctx, conn, m)
	case *kmsg.IncrementalAlterConfigsRequest:
		return c.alterConfigs(ctx, conn, m)
	case *kmsg.ListGroupsRequest:
		return c.listGroups(ctx, conn, m)
	case *kmsg.DeleteGroupsRequest:
		return c.deleteGroups(ctx, conn, m)
	default:
		return c.engine.Handle(ctx, c.shareConn(conn, q), m)
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
		switch k.ApiKey {
		case keyEndTxn:
			k.MinVersion = 5 // package txn: nothing older can be resolved
		case keyAddPartitionsToTxn:
			k.MaxVersion = min(k.MaxVersion, 3) // newer ones are between brokers
		case keyStreamsTopology, keyUnregister:
			continue
		}
		keep = append(keep, k)
	}
	resp.ApiKeys = keep
	add := func(key int16) {
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key})
	}
	level := wire.Draft95.ShareVersion()
	if c.cfg.Stock44 {
		level = 2 // dead-letter queues
		add(keyStreamsTopology)
		add(keyUnregister)
	}
	if p := c.staging(node); p != wire.None {
		add(p.Key())
	}
	feature := func(name string, level int16) {
		found := false
		for i := range resp.SupportedFeatures {
			if f := &resp.SupportedFeatures[i]; f.Name == name {
				f.MaxVersion, found = level, true
			}
		}
		if !found {
			resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{Name: name, MaxVersion: level})
		}
		found = false
		for i := range resp.FinalizedFeatures {
			if f := &resp.FinalizedFeatures[i]; f.Name == name {
				f.MinVersionLevel, f.MaxVersionLevel, found = level, level, true
			}
		}
		if !found {
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{Name: name, MinVersionLevel: level, MaxVersionLevel: level})
		}
	}
	feature("share.version", level)
	feature("transaction.version", 2)
	if resp.FinalizedFeaturesEpoch < 0 {
		resp.FinalizedFeaturesEpoch = 1
	}
}
