// Package broker is the embedded Kafka: one or more brokers in this process
// that speak KIP-1289 in either profile, or look like a stock Kafka 4.4. kfake
// keeps logs, metadata, fetch, classic groups, SASL and ACLs; transactions
// (package txn) and share groups (package share) are ours, in front of it.
// For tests, the demo and `sharetxn broker`; no service links it.
package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/front"
	"github.com/sharetxn/sharetxn/internal/broker/history"
	"github.com/sharetxn/sharetxn/internal/broker/mend"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kfake"
)

// Config of a Cluster. The zero Config is one broker on a free port of
// 127.0.0.1 without topics.
type Config struct {
	Brokers int                                                 // default 1; node ids are 0, 1, ...
	Ports   []int                                               // one per broker; default: free ones
	Host    string                                              // default 127.0.0.1
	Listen  func(network, address string) (net.Listener, error) // default net.Listen
	TLS     *tls.Config                                         // of the public side
	Topics  map[string]int32                                    // name to partitions, leaders in turn from node 0

	AutoCreateTopics bool // make topics for clients that ask so, as Kafka does by default

	Profile      wire.Profile // how staging is spoken; default Draft95
	Stock44      bool         // look like stock Kafka 4.4: keys 93 and 94 of other meaning, share.version 2, no staging
	Before44     bool         // a share fetch fails as a whole, with UNKNOWN_SERVER_ERROR, where a topic of its session is not there
	LacksStaging []int32      // nodes that do not advertise staging; may name ones that join later
	ShareVersion int16        // finalized share.version at first; default what staging needs, in Stock44 its highest

	InternalReplicas InternalReplicas // wanted of the internal topics

	// MaxVersions lowers, by API key, what all brokers offer, as older software
	// would: a key with a negative one is not offered at all. Requests above are
	// answered as Kafka does, by the end of the connection. Not of ApiVersions.
	MaxVersions map[int16]int16
	// UnknownTags puts a tagged field that nobody knows into the header and every
	// structure of every answer in a flexible version, as newer software may.
	UnknownTags bool

	GroupConfigs       map[string]map[string]string // per share group, Kafka's names
	OffsetReset        string                       // share.auto.offset.reset of groups that set none; default latest
	MinLockDuration    time.Duration                // lowest share.record.lock.duration.ms; default 1 s
	AssignmentInterval time.Duration                // default none, so that tests need not wait; Kafka 4.3: 1 s
	HeartbeatInterval  time.Duration                // default 5 s
	SessionTimeout     time.Duration                // default 45 s
	MinSessionTimeout  time.Duration                // lowest share.session.timeout.ms; default 45 s, or SessionTimeout if that is less
	MaxTxnTimeout      time.Duration                // transaction.max.timeout.ms; default 15 min

	// Data is a folder in which logs, transactions and share state survive this
	// process, made where it is missing; default none. It belongs to one cluster at a
	// time, of the same Brokers, Profile and Stock44, and survives SIGKILL; files are
	// not synced, so not the loss of power. A cluster that cannot write there any more
	// ends: see Done. Topics that are there stay as they are, and AddNode fails.
	Data string
	// OnWrite adds changes to the journal in Data, in place of the file's own Write:
	// see journal.Journal.OnWrite.
	OnWrite func(file io.Writer, changes []byte) (int, error)

	History bool // keep what happens, for Facts
	// Witness is told of each event of the History, in order, before anything comes of
	// it: what it writes down outlives the process. It must not call back.
	Witness   func(history.Event)
	Intercept Intercept
	Logger    *slog.Logger // default: none
}

// StateTopic is the name under which staged acknowledgements take part in
// transactions. No such topic exists here: the engine is its state.
const StateTopic = "__share_group_state"

// Cluster is safe for concurrent use.
type Cluster struct {
	cfg     Config
	kf      *kfake.Cluster
	engine  *share.Engine
	txns    *txn.Coordinator
	ids     atomic.Uint64
	fresh   atomic.Int64  // producer ids asked of kfake
	data    *data         // nil: nothing is kept
	ready   chan struct{} // closed when requests may be served
	offsets stagedOffsets
	history *history.Recorder // nil: none is kept
	deeds   sync.WaitGroup    // functions of Actions
	links   links
	marked  marked
	lag     lag

	features features

	nodeMu  sync.RWMutex
	brokers []*front.Broker
	lacks   map[int32]bool // staging

	die    context.Context
	cancel context.CancelFunc
	once   sync.Once

	mu        sync.Mutex
	intercept Intercept
	seen      map[int16]Traffic
	err       error // why it ended by itself
}

// Start starts a cluster. Close it.
func Start(cfg Config) (*Cluster, error) {
	if cfg.Brokers == 0 {
		cfg.Brokers = max(1, len(cfg.Ports))
	}
	if len(cfg.Ports) > 0 && len(cfg.Ports) != cfg.Brokers {
		return nil, fmt.Errorf("broker: %d ports for %d brokers", len(cfg.Ports), cfg.Brokers)
	}
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.Listen == nil {
		cfg.Listen = net.Listen
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Profile == wire.None {
		cfg.Profile = wire.Draft95
	}
	if cfg.ShareVersion == 0 {
		cfg.ShareVersion = cfg.Profile.ShareVersion()
		if cfg.Stock44 {
			cfg.ShareVersion = stockShareVersion
		}
	}
	kept, found, err := openData(cfg)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		data: kept,
		cfg:  cfg, intercept: cfg.Intercept, seen: make(map[int16]Traffic), offsets: stagedOffsets{m: make(map[txn.Key]kfakeTxn)},
		features: features{levels: levels{share: cfg.ShareVersion, txn: stagingTxnVersion}, epoch: 1}, lacks: make(map[int32]bool),
		ready: make(chan struct{}),
		links: links{cut: make(map[[2]int32]bool), changed: make(chan struct{})}, marked: marked{epochs: make(map[markedLog]int16), lost: make(map[markedLog]int16)},
	}
	for _, node := range cfg.LacksStaging {
		c.lacks[node] = true
	}
	c.die, c.cancel = context.WithCancel(context.Background())
	if cfg.History {
		c.history = &history.Recorder{Witness: cfg.Witness}
	}
	txns := txn.Config{Backend: backend{c}, MaxTimeout: cfg.MaxTxnTimeout, StateTopic: StateTopic, Logger: cfg.Logger, Die: c.die, Observe: history.Observe[txn.Event](c.history),
		Initialised: history.Observe[txn.Initialised](c.history),
	}
	if c.data != nil {
		txns.Keep = c.keepTxn
	}
	c.txns = txn.New(txns)
	c.engine = share.New(share.Config{
		Log: logs{c}, Txns: c.txns, Profile: cfg.Profile, Staging: !cfg.Stock44 && c.features.levels.staging(cfg.Profile), OffsetReset: cfg.OffsetReset, GroupConfigs: cfg.GroupConfigs, Before44: cfg.Before44,
		MinLockDuration: cfg.MinLockDuration, AssignmentInterval: cfg.AssignmentInterval,
		HeartbeatInterval: cfg.HeartbeatInterval, SessionTimeout: cfg.SessionTimeout, MinSessionTimeout: cfg.MinSessionTimeout, Logger: cfg.Logger,
		Observe: history.Observe[share.Event](c.history), Keeps: c.data != nil,
	})
	kfakeOpts := []kfake.Opt{
		kfake.NumBrokers(cfg.Brokers),
		kfake.Ports(c.ports()...),
		kfake.ClusterID("sharetxn-embedded"),
		kfake.ListenFn(c.listen),
		// The coordinator here has the timeouts; kfake must never end a transaction.
		kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "2147483647"}),
	}
	if c.data != nil {
		kfakeOpts = append(kfakeOpts, kfake.DataDir(logsFolder(cfg.Data)))
	}
	kf, err := kfake.NewCluster(kfakeOpts...)
	if err != nil {
		c.cancel()
		c.closeFronts()
		return nil, fmt.Errorf("broker: %w", errors.Join(err, c.data.close()))
	}
	c.kf = kf
	if err := c.begin(found); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// begin makes of kfake's logs the cluster that was wanted, and opens it.
func (c *Cluster) begin(found map[mend.Log]mend.Found) error {
	if c.data != nil {
		if err := c.restore(found); err != nil {
			return fmt.Errorf("broker: folder %s: %w", c.cfg.Data, err)
		}
	}
	for name, partitions := range c.cfg.Topics {
		if c.data != nil && c.Partitions(name) > 0 {
			continue
		}
		if err := c.CreateTopic(name, partitions); err != nil {
			return err
		}
	}
	if err := c.durable(); err != nil {
		return err
	}
	close(c.ready)
	return nil
}

// fail ends the cluster by itself.
func (c *Cluster) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.cfg.Logger.Error("the cluster ends", "err", err)
	c.cancel()
}

// Done is closed when the cluster ends: by Close, or by itself, and then Err says
// why.
func (c *Cluster) Done() <-chan struct{} { return c.die.Done() }

// Err is why the cluster ended by itself; nil where it did not.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Cluster) ports() []int {
	if len(c.cfg.Ports) > 0 {
		return c.cfg.Ports
	}
	return make([]int, c.cfg.Brokers)
}

func (c *Cluster) open(network, address string) (net.Listener, error) {
	l, err := c.cfg.Listen(network, address)
	if err == nil && c.cfg.TLS != nil {
		l = tls.NewListener(l, c.cfg.TLS)
	}
	return l, err
}

// Close stops everything and waits; no goroutine is left. Idempotent.
func (c *Cluster) Close() {
	c.once.Do(func() {
		c.cancel()
		c.closeFronts()
		c.deeds.Wait()
		c.engine.Close()
		c.txns.Close()
		c.kf.Close()
		if err := c.data.close(); err != nil {
			c.cfg.Logger.Error("folder not closed", "err", err)
		}
	})
}

func (c *Cluster) closeFronts() {
	for _, b := range c.nodes() {
		b.Close()
	}
}

// Seeds are the brokers' addresses, in order of node.
func (c *Cluster) Seeds() []string {
	nodes := c.nodes()
	out := make([]string, len(nodes))
	for i, b := range nodes {
		out[i] = b.Addr()
	}
	return out
}

// CreateTopic creates a topic with leaders in turn from node 0.
func (c *Cluster) CreateTopic(name string, partitions int32) error {
	if partitions < 1 {
		return fmt.Errorf("broker: topic %s: %d partitions", name, partitions)
	}
	if err := c.kf.CreateTopic(name, partitions, nil); err != nil {
		return fmt.Errorf("broker: topic %s: %w", name, err)
	}
	return c.place(name)
}

// place makes leaders predictable: kfake draws them at random.
func (c *Cluster) place(topic string) error {
	nodes := int32(len(c.nodes()))
	for _, p := range c.kf.PartitionInfos(topic) {
		if node := p.Partition % nodes; node != p.Leader {
			if err := c.kf.MoveTopicPartition(topic, p.Partition, node); err != nil {
				return fmt.Errorf("broker: topic %s: %w", topic, err)
			}
		}
		c.keepLog(topic, p.Partition)
	}
	return nil
}

// MoveLeader makes node the leader of a partition.
func (c *Cluster) MoveLeader(topic string, partition, node int32) error {
	if err := c.kf.MoveTopicPartition(topic, partition, node); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	c.keepLog(topic, partition)
	c.engine.LeaderChanged(c.TopicID(topic), partition)
	c.links.wake() // markers may reach the new leader
	return nil
}

// Leader is the leader of a partition; -1 if there is none.
func (c *Cluster) Leader(topic string, partition int32) int32 {
	return c.kf.LeaderFor(topic, partition)
}

// TopicID is the topic's id; zero if it does not exist.
func (c *Cluster) TopicID(topic string) [16]byte {
	if t := c.kf.TopicInfo(topic); t != nil {
		return t.TopicID
	}
	return [16]byte{}
}

// Transactions, PartitionStates and StateOf are what audits look at.
func (c *Cluster) Transactions() []txn.View { return c.txns.Transactions() }

// PartitionStates gives the share partitions of a group.
func (c *Cluster) PartitionStates(group string) []share.PartitionState {
	return c.engine.PartitionStates(group)
}

// Subscribed gives the topics that members of a share group ever subscribed to.
func (c *Cluster) Subscribed(group string) [][16]byte { return c.engine.Subscribed(group) }

// StateOf is the state of one offset in a share group; ok is false outside of
// the window: below it everything is done.
func (c *Cluster) StateOf(group, topic string, partition int32, offset int64) (s share.State, owner string, count int16, ok bool) {
	return c.engine.StateOf(group, c.TopicID(topic), partition, offset)
}

// SetGroupConfig sets configs of a share group, as IncrementalAlterConfigs does.
func (c *Cluster) SetGroupConfig(group string, kv map[string]string) error {
	set := make(map[string]*string, len(kv))
	for k, v := range kv {
		set[k] = &v
	}
	return c.setGroupConfig(group, set)
}
