// Package rules judges whether a ledger can keep its promise where it is to be
// used: what brokers offer, the ledger topic, the group's configs. It is pure:
// facts in, problems out. Each rule stands for a failure of the ledger that was
// seen without it, or for a loss that it cannot prevent.
package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Problem is one rule that is not met.
type Problem struct {
	Rule    string // a word for programs: "broker-api", "ledger-config", ...
	Setting string // what is wrong, as its owner names it
	Value   string // as it is
	Want    string
	Command string // that mends it; $BOOTSTRAP stands for the brokers' addresses
	Fatal   bool   // the promise does not hold without it
}

// Judge gives all problems, those of brokers first.
func Judge(f Facts) []Problem {
	var all []Problem
	for _, rule := range []func(Facts) []Problem{
		refused, brokerAPIs, levels, sources, ledgerTopic, ledgerConfigs, ledgerPartitions, ledgerReplicas, generation, guarantee,
		renewal, isolation, deliveryLimit, transactionTimeout, internalTopics,
	} {
		all = append(all, rule(f)...)
	}
	return all
}

func refused(f Facts) (out []Problem) {
	for _, r := range f.Refused {
		out = append(out, Problem{
			Rule: "acl", Setting: r.Setting, Value: "not told", Want: r.ACL, Fatal: r.Fatal,
			Command: "grant " + r.ACL + " to the principal that asks (kafka-acls.sh)",
		})
	}
	return out
}

// need is an API that the ledger uses: the lowest version that will do, and the
// first Kafka that has it.
type need struct {
	key     int16
	name    string
	version int16
	since   string
	why     string
}

var needs = []need{
	{0, "Produce", 12, "4.0", "transactions that brokers check record by record"},
	{21, "DeleteRecords", 0, "0.11", "truncation"},
	{22, "InitProducerId", 3, "2.5", "a producer that says who it is"},
	{26, "EndTxn", 5, "4.0", "outcomes that can be asked for again"},
	{65, "DescribeTransactions", 0, "3.0", "outcomes that can be asked for again"},
	{76, "ShareGroupHeartbeat", 1, "4.1", "share groups"},
	{77, "ShareGroupDescribe", 1, "4.1", "share groups"},
	{78, "ShareFetch", 2, "4.2", "renewal of locks"},
	{79, "ShareAcknowledge", 2, "4.2", "renewal of locks"},
	{90, "DescribeShareGroupOffsets", 0, "4.1", "starts of share partitions"},
	{91, "AlterShareGroupOffsets", 0, "4.1", "reset"},
}

// allNeeds is the first Kafka that has all of needs.
const allNeeds = "4.2"

func brokerAPIs(f Facts) (out []Problem) {
	for _, b := range f.Brokers {
		for _, n := range needs {
			has, offered := b.APIs[n.key]
			if offered && has >= n.version {
				continue
			}
			value := "not offered"
			if offered {
				value = fmt.Sprintf("version %d", has)
			}
			out = append(out, Problem{
				Rule: "broker-api", Setting: fmt.Sprintf("%s of broker %d", n.name, b.ID), Value: value, Fatal: true,
				Want:    fmt.Sprintf("version %d (%s; Kafka %s has it)", n.version, n.why, n.since),
				Command: fmt.Sprintf("upgrade broker %d to Kafka %s or later", b.ID, allNeeds),
			})
		}
	}
	return out
}

func levels(f Facts) (out []Problem) {
	for _, l := range []struct {
		rule, feature string
		level, want   int16
	}{{"transaction-version", "transaction.version", f.TransactionVersion, 2}, {"share-version", "share.version", f.ShareVersion, 1}} {
		if l.level >= l.want {
			continue
		}
		value := "none"
		if l.level >= 0 {
			value = strconv.Itoa(int(l.level))
		}
		out = append(out, Problem{
			Rule: l.rule, Setting: l.feature, Value: value, Want: fmt.Sprintf("%d or more", l.want), Fatal: true,
			Command: fmt.Sprintf("kafka-features.sh --bootstrap-server $BOOTSTRAP upgrade --feature %s=%d", l.feature, l.want),
		})
	}
	return out
}

// sources that do not exist may come to be later.
func sources(f Facts) (out []Problem) {
	for _, s := range f.Sources {
		if s.Partitions == 0 {
			out = append(out, Problem{
				Rule: "source-topic", Setting: "topic " + s.Topic, Value: "does not exist", Want: "a topic with records to consume",
				Command: fmt.Sprintf("kafka-topics.sh --bootstrap-server $BOOTSTRAP --create --topic %s --partitions N", s.Topic),
			})
		}
	}
	return out
}

// widest is the largest source topic.
func widest(f Facts) (s Source) {
	for _, x := range f.Sources {
		if x.Partitions > s.Partitions {
			s = x
		}
	}
	return s
}

// create is the command that makes or widens the ledger topic.
func create(f Facts) string {
	return fmt.Sprintf("sharetxn ledger create --bootstrap $BOOTSTRAP --group %s --topics %s", f.Group, names(f))
}

func names(f Facts) string {
	all := make([]string, len(f.Sources))
	for i, s := range f.Sources {
		all[i] = s.Topic
	}
	return strings.Join(all, ",")
}

func ledgerTopic(f Facts) []Problem {
	if f.Ledger.Hidden || f.Ledger.Partitions > 0 {
		return nil
	}
	return []Problem{{
		Rule: "ledger-topic", Setting: "topic " + f.Ledger.Topic, Value: "does not exist", Want: "a topic with as many partitions as the largest source topic",
		Command: create(f), Fatal: true,
	}}
}

// ledgerConfigs: a config that is not told is not taken for right.
func ledgerConfigs(f Facts) (out []Problem) {
	if f.Ledger.Configs == nil {
		return nil // there is no topic, or its configs are refused
	}
	want := TopicConfigs(f.Ledger.Replicas)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value, told := f.Ledger.Configs[name]
		if value == want[name] || name == MinInsync && number(value) >= number(want[name]) {
			continue
		}
		if !told {
			value = "not told"
		}
		out = append(out, Problem{
			Rule: "ledger-config", Setting: name + " of topic " + f.Ledger.Topic, Value: value, Want: want[name], Fatal: true,
			Command: fmt.Sprintf("kafka-configs.sh --bootstrap-server $BOOTSTRAP --alter --entity-type topics --entity-name %s --add-config %s=%s", f.Ledger.Topic, name, want[name]),
		})
	}
	return out
}

// number is 0 for what is none.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

func ledgerPartitions(f Facts) []Problem {
	most := widest(f)
	if f.Ledger.Partitions == 0 || f.Ledger.Partitions >= most.Partitions {
		return nil
	}
	return []Problem{{
		Rule: "ledger-partitions", Setting: "partitions of topic " + f.Ledger.Topic, Value: strconv.Itoa(f.Ledger.Partitions), Fatal: true,
		Want: fmt.Sprintf("%d, as topic %s has", most.Partitions, most.Topic), Command: create(f),
	}}
}

// safeReplicas is how many replicas survive the loss of one with another that
// had everything.
const safeReplicas = 3

func ledgerReplicas(f Facts) []Problem {
	if f.Ledger.Partitions == 0 || f.Ledger.Replicas >= safeReplicas || len(f.Brokers) < safeReplicas {
		return nil
	}
	return []Problem{{
		Rule: "ledger-replicas", Setting: "replication factor of topic " + f.Ledger.Topic, Value: strconv.Itoa(f.Ledger.Replicas),
		Want:    fmt.Sprintf("%d: what is committed is doubled if all replicas of the ledger are lost, and while a partition has no leader brokers lose the ends of transactions", safeReplicas),
		Command: "kafka-reassign-partitions.sh --bootstrap-server $BOOTSTRAP --execute --reassignment-json-file FILE, with three replicas for each partition",
	}}
}

func generation(f Facts) []Problem {
	if f.Ledger.Broken == "" {
		return nil
	}
	return []Problem{{
		Rule: "generation", Setting: "generation of topic " + f.Ledger.Topic, Value: f.Ledger.Broken, Want: "one generation, the same in each partition",
		Command: strings.ReplaceAll(f.Ledger.Remedy, "TOPICS", names(f)), Fatal: true,
	}}
}

// promise is the guarantee whose rules these are.
const promise = "ledger"

func guarantee(f Facts) []Problem {
	if f.Ledger.Guarantee == "" || f.Ledger.Guarantee == promise {
		return nil
	}
	return []Problem{{
		Rule: "guarantee", Setting: "guarantee of group " + f.Group, Value: f.Ledger.Guarantee, Want: promise + ": members under different guarantees would do records twice",
		Command: "stop the group's members, then: sharetxn ledger move --bootstrap $BOOTSTRAP --group " + f.Group + " --to " + promise, Fatal: true,
	}}
}

// setGroup is the command that sets a config of the group.
func setGroup(f Facts, config string) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server $BOOTSTRAP --alter --entity-type groups --entity-name %s --add-config %s", f.Group, config)
}

func renewal(f Facts) []Problem {
	if !f.Share.NoRenewal {
		return nil
	}
	return []Problem{{
		Rule: "renewal", Setting: "share.renew.acknowledge.enable of group " + f.Group, Value: "false", Fatal: true,
		Want: "true: who waits for another's transaction renews its locks", Command: setGroup(f, "share.renew.acknowledge.enable=true"),
	}}
}

func isolation(f Facts) []Problem {
	if !f.Share.Known || f.Share.ReadCommitted {
		return nil
	}
	return []Problem{{
		Rule: "isolation", Setting: "share.isolation.level of group " + f.Group, Value: "read_uncommitted", Fatal: f.ReadCommitted,
		Want: "read_committed, where inputs are written in transactions: else what aborted is handled too", Command: setGroup(f, "share.isolation.level=read_committed"),
	}}
}

const (
	// leastLimit: with two deliveries none can be kept for the dead letter, so that
	// two crashes lose a record in silence.
	leastLimit = 3
	// goodLimit is the most that Kafka allows.
	goodLimit = 10
)

func deliveryLimit(f Facts) []Problem {
	n := f.Share.DeliveryLimit
	if n == 0 || n >= goodLimit {
		return nil
	}
	want := fmt.Sprintf("%d: each crash costs a record that was under way one delivery, and at the limit the broker drops it", goodLimit)
	if n < leastLimit {
		want = fmt.Sprintf("%d, at least %d: with fewer two crashes drop a record without a dead letter", goodLimit, leastLimit)
	}
	return []Problem{{
		Rule: "delivery-limit", Setting: "share.delivery.count.limit of group " + f.Group, Value: strconv.Itoa(n), Want: want, Fatal: n < leastLimit,
		Command: setGroup(f, "share.delivery.count.limit=10") + " (before Kafka 4.3: group.share.delivery.count.limit=10 in the brokers' configuration)",
	}}
}

// StockScan is how often stock Kafka looks for transactions whose time is up.
const StockScan = 10 * time.Second

// transactionTimeout: what a crashed member left open must end while those who
// wait for it still have deliveries, should their locks not be renewed.
func transactionTimeout(f Facts) []Problem {
	if f.TransactionTimeout == 0 || f.Share.Lock == 0 || f.Share.DeliveryLimit == 0 {
		return nil
	}
	scan := cmp.Or(f.Settings.TimeoutScan, StockScan)
	have := f.Share.Lock * time.Duration(f.Share.DeliveryLimit-1)
	if f.TransactionTimeout+scan <= have {
		return nil
	}
	want := fmt.Sprintf("at most %v: lock %v x (delivery limit %d - 1) - %v, after which brokers look", have-scan, f.Share.Lock, f.Share.DeliveryLimit, scan)
	command := fmt.Sprintf("set Config.TransactionTimeout to %v or less", have-scan)
	if have <= scan {
		want = fmt.Sprintf("lock x (delivery limit - 1) above it and %v, after which brokers look; it is %v x %d", scan, f.Share.Lock, f.Share.DeliveryLimit-1)
		command = setGroup(f, "share.record.lock.duration.ms=30000")
	}
	return []Problem{{Rule: "transaction-timeout", Setting: "transaction timeout", Value: f.TransactionTimeout.String(), Want: want, Command: command, Fatal: true}}
}

// Settings of brokers for the topics that transactions and share groups rest on.
var internal = []struct {
	setting string
	want    int
}{
	{"share.coordinator.state.topic.min.isr", 2},
	{"share.coordinator.state.topic.replication.factor", 3},
	{"transaction.state.log.min.isr", 2},
	{"transaction.state.log.replication.factor", 3},
}

// InternalSettings are the settings of brokers that Facts.Settings.Replication
// has.
func InternalSettings() (names []string) {
	for _, s := range internal {
		names = append(names, s.setting)
	}
	return names
}

func internalTopics(f Facts) (out []Problem) {
	if len(f.Brokers) < safeReplicas {
		return nil
	}
	for _, s := range internal {
		value, told := f.Settings.Replication[s.setting]
		if !told || number(value) >= s.want {
			continue
		}
		out = append(out, Problem{
			Rule: "internal-topics", Setting: s.setting, Value: value, Want: fmt.Sprintf("%d: outcomes and starts would be lost with one broker", s.want),
			Command: fmt.Sprintf("set %s=%d in each broker's configuration before the topic is made; else kafka-reassign-partitions.sh and kafka-configs.sh on it", s.setting, s.want),
		})
	}
	return out
}
