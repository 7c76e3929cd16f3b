package rules_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/ledger/rules"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// apis are what Kafka 4.2 offers of what the ledger needs.
func apis() map[int16]int16 {
	return map[int16]int16{0: 13, 21: 2, 22: 5, 26: 5, 65: 0, 76: 1, 77: 1, 78: 2, 79: 2, 90: 1, 91: 0}
}

// good are facts that meet every rule.
func good() rules.Facts {
	return rules.Facts{
		Group:              "g",
		Sources:            []rules.Source{{Topic: "a", Partitions: 3}, {Topic: "b", Partitions: 5}},
		TransactionTimeout: 15 * time.Second, ReadCommitted: true,
		Brokers:            []rules.Broker{{ID: 1, APIs: apis()}, {ID: 2, APIs: apis()}, {ID: 3, APIs: apis()}},
		TransactionVersion: 2, ShareVersion: 1,
		Settings: rules.Settings{
			Replication: map[string]string{
				"share.coordinator.state.topic.min.isr": "2", "share.coordinator.state.topic.replication.factor": "3",
				"transaction.state.log.min.isr": "2", "transaction.state.log.replication.factor": "3",
			},
			TimeoutScan: 10 * time.Second,
		},
		Ledger: rules.Ledger{Topic: "l", Partitions: 5, Replicas: 3, Configs: rules.TopicConfigs(3), Guarantee: "ledger"},
		Share:  rules.Share{Known: true, ReadCommitted: true, DeliveryLimit: 10, Lock: 30 * time.Second},
	}
}

// Each rule is unmet by one change, and nothing else is found then.
func TestJudge(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const (
		create  = "sharetxn ledger create --bootstrap $BOOTSTRAP --group g --topics a,b"
		configs = "kafka-configs.sh --bootstrap-server $BOOTSTRAP --alter --entity-type "
	)
	want := func(ps ...rules.Problem) []rules.Problem { return ps }
	for name, tc := range map[string]struct {
		change func(*rules.Facts)
		want   []rules.Problem
	}{
		"all met":                    {func(*rules.Facts) {}, nil},
		"more than is wanted":        {func(f *rules.Facts) { f.TransactionVersion, f.ShareVersion, f.Ledger.Partitions = 3, 2, 9 }, nil},
		"one broker, one replica":    {func(f *rules.Facts) { alone(f) }, nil},
		"nothing told of the topics": {func(f *rules.Facts) { f.Settings = rules.Settings{} }, nil},
		"no timeout to judge":        {func(f *rules.Facts) { f.TransactionTimeout, f.Share.Lock = 0, time.Millisecond }, nil},
		"more in sync than wanted":   {func(f *rules.Facts) { f.Ledger.Configs["min.insync.replicas"] = "3" }, nil},

		"an API is missing": {func(f *rules.Facts) { delete(f.Brokers[1].APIs, 91) }, want(rules.Problem{
			Rule: "broker-api", Setting: "AlterShareGroupOffsets of broker 2", Value: "not offered", Want: "version 0 (reset; Kafka 4.1 has it)",
			Command: "upgrade broker 2 to Kafka 4.2 or later", Fatal: true})},
		"an API is too old": {func(f *rules.Facts) { f.Brokers[2].APIs[79], f.Brokers[0].APIs[0] = 1, 11 }, want(
			rules.Problem{
				Rule: "broker-api", Setting: "Produce of broker 1", Value: "version 11", Want: "version 12 (transactions that brokers check record by record; Kafka 4.0 has it)",
				Command: "upgrade broker 1 to Kafka 4.2 or later", Fatal: true},
			rules.Problem{
				Rule: "broker-api", Setting: "ShareAcknowledge of broker 3", Value: "version 1", Want: "version 2 (renewal of locks; Kafka 4.2 has it)",
				Command: "upgrade broker 3 to Kafka 4.2 or later", Fatal: true})},
		"transaction.version": {func(f *rules.Facts) { f.TransactionVersion = 1 }, want(rules.Problem{
			Rule: "transaction-version", Setting: "transaction.version", Value: "1", Want: "2 or more",
			Command: "kafka-features.sh --bootstrap-server $BOOTSTRAP upgrade --feature transaction.version=2", Fatal: true})},
		"share.version": {func(f *rules.Facts) { f.ShareVersion = -1 }, want(rules.Problem{
			Rule: "share-version", Setting: "share.version", Value: "none", Want: "1 or more",
			Command: "kafka-features.sh --bootstrap-server $BOOTSTRAP upgrade --feature share.version=1", Fatal: true})},
		"a source is missing": {func(f *rules.Facts) { f.Sources[0].Partitions = 0 }, want(rules.Problem{
			Rule: "source-topic", Setting: "topic a", Value: "does not exist", Want: "a topic with records to consume",
			Command: "kafka-topics.sh --bootstrap-server $BOOTSTRAP --create --topic a --partitions N"})},
		"no ledger": {func(f *rules.Facts) { f.Ledger = rules.Ledger{Topic: "l"} }, want(rules.Problem{
			Rule: "ledger-topic", Setting: "topic l", Value: "does not exist", Want: "a topic with as many partitions as the largest source topic", Command: create, Fatal: true})},
		"nobody tells of the ledger": {func(f *rules.Facts) {
			f.Ledger = rules.Ledger{Topic: "l", Hidden: true}
			f.Refused = []rules.Refusal{{Setting: "topic l", ACL: "Describe on topic l", Fatal: true}}
		}, want(rules.Problem{
			Rule: "acl", Setting: "topic l", Value: "not told", Want: "Describe on topic l", Command: "grant Describe on topic l to the principal that asks (kafka-acls.sh)", Fatal: true})},
		"cleanup":   {config("cleanup.policy", "compact"), want(ofTopic("cleanup.policy", "compact", "delete"))},
		"time":      {config("retention.ms", "604800000"), want(ofTopic("retention.ms", "604800000", "-1"))},
		"size":      {config("retention.bytes", "1"), want(ofTopic("retention.bytes", "1", "-1"))},
		"in sync":   {config("min.insync.replicas", "1"), want(ofTopic("min.insync.replicas", "1", "2"))},
		"unclean":   {config("unclean.leader.election.enable", "true"), want(ofTopic("unclean.leader.election.enable", "true", "false"))},
		"not told":  {func(f *rules.Facts) { delete(f.Ledger.Configs, "retention.ms") }, want(ofTopic("retention.ms", "not told", "-1"))},
		"in sync 0": {func(f *rules.Facts) { alone(f); f.Ledger.Configs["min.insync.replicas"] = "?" }, want(ofTopic("min.insync.replicas", "?", "1"))},
		"too narrow": {func(f *rules.Facts) { f.Ledger.Partitions = 4 }, want(rules.Problem{
			Rule: "ledger-partitions", Setting: "partitions of topic l", Value: "4", Want: "5, as topic b has", Command: create, Fatal: true})},
		"few replicas": {func(f *rules.Facts) { f.Ledger.Replicas, f.Ledger.Configs = 2, rules.TopicConfigs(2) }, want(rules.Problem{
			Rule: "ledger-replicas", Setting: "replication factor of topic l", Value: "2", Want: "3: what is committed is doubled if all replicas of the ledger are lost, and while a partition has no leader brokers lose the ends of transactions",
			Command: "kafka-reassign-partitions.sh --bootstrap-server $BOOTSTRAP --execute --reassignment-json-file FILE, with three replicas for each partition"})},
		"generations differ": {func(f *rules.Facts) {
			f.Ledger.Broken, f.Ledger.Remedy = "partitions differ", "sharetxn ledger create --topics TOPICS"
		}, want(rules.Problem{
			Rule: "generation", Setting: "generation of topic l", Value: "partitions differ", Want: "one generation, the same in each partition",
			Command: "sharetxn ledger create --topics a,b", Fatal: true})},
		"another guarantee": {func(f *rules.Facts) { f.Ledger.Guarantee = "staged" }, want(rules.Problem{
			Rule: "guarantee", Setting: "guarantee of group g", Value: "staged", Want: "ledger: members under different guarantees would do records twice",
			Command: "stop the group's members, then: sharetxn ledger move --bootstrap $BOOTSTRAP --group g --to ledger", Fatal: true})},
		"no renewal": {func(f *rules.Facts) { f.Share.NoRenewal = true }, want(rules.Problem{
			Rule: "renewal", Setting: "share.renew.acknowledge.enable of group g", Value: "false", Want: "true: who waits for another's transaction renews its locks",
			Command: configs + "groups --entity-name g --add-config share.renew.acknowledge.enable=true", Fatal: true})},
		"reads uncommitted": {func(f *rules.Facts) { f.Share.ReadCommitted, f.ReadCommitted = false, false }, want(uncommitted(false))},
		"must not":          {func(f *rules.Facts) { f.Share.ReadCommitted = false }, want(uncommitted(true))},
		"limit 9":           {limit(9), want(ofLimit("9", "10: each crash costs a record that was under way one delivery, and at the limit the broker drops it", false))},
		"limit 3":           {limit(3), want(ofLimit("3", "10: each crash costs a record that was under way one delivery, and at the limit the broker drops it", false))},
		"limit 2":           {limit(2), want(ofLimit("2", "10, at least 3: with fewer two crashes drop a record without a dead letter", true))},
		"long transactions": {func(f *rules.Facts) { f.TransactionTimeout = 260*time.Second + 1 }, want(rules.Problem{
			Rule: "transaction-timeout", Setting: "transaction timeout", Value: "4m20.000000001s", Want: "at most 4m20s: lock 30s x (delivery limit 10 - 1) - 10s, after which brokers look",
			Command: "set Config.TransactionTimeout to 4m20s or less", Fatal: true})},
		"just short enough": {func(f *rules.Facts) { f.TransactionTimeout = 260 * time.Second }, nil},
		"quick brokers":     {func(f *rules.Facts) { f.TransactionTimeout, f.Settings.TimeoutScan = 269*time.Second, time.Second }, nil},
		"a short lock": {func(f *rules.Facts) { f.Share.Lock, f.Settings.TimeoutScan = time.Second, 0 }, want(rules.Problem{
			Rule: "transaction-timeout", Setting: "transaction timeout", Value: "15s", Want: "lock x (delivery limit - 1) above it and 10s, after which brokers look; it is 1s x 9",
			Command: configs + "groups --entity-name g --add-config share.record.lock.duration.ms=30000", Fatal: true})},
		"internal topics": {func(f *rules.Facts) {
			f.Settings.Replication["transaction.state.log.min.isr"] = "1"
			delete(f.Settings.Replication, "share.coordinator.state.topic.min.isr")
		}, want(rules.Problem{
			Rule: "internal-topics", Setting: "transaction.state.log.min.isr", Value: "1", Want: "2: outcomes and starts would be lost with one broker",
			Command: "set transaction.state.log.min.isr=2 in each broker's configuration before the topic is made; else kafka-reassign-partitions.sh and kafka-configs.sh on it"})},
	} {
		f := good()
		f.Brokers = slices.Clone(f.Brokers)
		f.Ledger.Configs = maps.Clone(f.Ledger.Configs)
		tc.change(&f)
		if got := rules.Judge(f); !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, tc.want)
		}
	}
}

// alone makes the facts those of one broker.
func alone(f *rules.Facts) {
	f.Brokers = f.Brokers[:1]
	f.Ledger.Replicas, f.Ledger.Configs = 1, rules.TopicConfigs(1)
	clear(f.Settings.Replication)
}

func config(name, value string) func(*rules.Facts) {
	return func(f *rules.Facts) { f.Ledger.Configs[name] = value }
}

func ofTopic(name, value, want string) rules.Problem {
	return rules.Problem{
		Rule: "ledger-config", Setting: name + " of topic l", Value: value, Want: want, Fatal: true,
		Command: "kafka-configs.sh --bootstrap-server $BOOTSTRAP --alter --entity-type topics --entity-name l --add-config " + name + "=" + want,
	}
}

func uncommitted(fatal bool) rules.Problem {
	return rules.Problem{
		Rule: "isolation", Setting: "share.isolation.level of group g", Value: "read_uncommitted", Fatal: fatal,
		Want:    "read_committed, where inputs are written in transactions: else what aborted is handled too",
		Command: "kafka-configs.sh --bootstrap-server $BOOTSTRAP --alter --entity-type groups --entity-name g --add-config share.isolation.level=read_committed",
	}
}

func limit(n int) func(*rules.Facts) { return func(f *rules.Facts) { f.Share.DeliveryLimit = n } }

func ofLimit(value, want string, fatal bool) rules.Problem {
	return rules.Problem{
		Rule: "delivery-limit", Setting: "share.delivery.count.limit of group g", Value: value, Want: want, Fatal: fatal,
		Command: "kafka-configs.sh --bootstrap-server $BOOTSTRAP --alter --entity-type groups --entity-name g --add-config share.delivery.count.limit=10 (before Kafka 4.3: group.share.delivery.count.limit=10 in the brokers' configuration)",
	}
}

func TestTopicConfigs(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for replicas, insync := range map[int]string{1: "1", 2: "1", 3: "2", 5: "2"} {
		want := map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "min.insync.replicas": insync, "unclean.leader.election.enable": "false"}
		if got := rules.TopicConfigs(replicas); !maps.Equal(got, want) {
			t.Errorf("%d replicas: %v, want %v", replicas, got, want)
		}
	}
}

// What the rules of internal topics ask for is what they judge.
func TestInternalSettings(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	want := slices.Sorted(maps.Keys(good().Settings.Replication))
	if got := rules.InternalSettings(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
