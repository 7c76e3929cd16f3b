package foreign

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// printed is what a tool did.
type printed struct {
	Exit     int
	Out, Err string
}

// tool runs one of Kafka's command line tools, with --bootstrap-server.
func (w *world) tool(ctx context.Context, t *testing.T, class, stdin string, args ...string) printed {
	t.Helper()
	at := []string{"--bootstrap-server", w.bootstrap()}
	if class == clusterTool { // the option is its subcommands'
		args, at = at, args
	}
	return call[printed](ctx, t, "tool", "", map[string]any{"tool": "org.apache.kafka.tools." + class, "stdin": stdin, "args": append(at, args...)})
}

// The tools' classes, below org.apache.kafka.tools.
const (
	topicTool    = "TopicCommand"
	configTool   = "ConfigCommand"
	produceTool  = "ConsoleProducer"
	consumeTool  = "consumer.ConsoleConsumer"
	shareTool    = "consumer.ConsoleShareConsumer"
	offsetsTool  = "GetOffsetShell"
	recordsTool  = "DeleteRecordsCommand"
	groupTool    = "consumer.group.ShareGroupCommand"
	consumerTool = "consumer.group.ConsumerGroupCommand"
	groupsTool   = "GroupsCommand"
	txnTool      = "TransactionsCommand"
	featureTool  = "FeatureCommand"
	versionsTool = "BrokerApiVersionsCommand"
	clusterTool  = "ClusterTool"
	quorumTool   = "MetadataQuorumCommand"
	logDirsTool  = "LogDirsCommand"
)

// ran is tool for what must work; it gives what was printed.
func (w *world) ran(ctx context.Context, t *testing.T, class, stdin string, args ...string) string {
	t.Helper()
	p := w.tool(ctx, t, class, stdin, args...)
	if p.Exit != 0 || strings.Contains(p.Out, "Error") || strings.Contains(p.Err, "Exception") {
		t.Fatalf("%s %v: exit %d\n%s\n%s", class, args, p.Exit, p.Out, p.Err)
	}
	return p.Out
}

// table reads columns under a line of headings: a row is heading to cell.
func table(out string) (rows []map[string]string) {
	var heads []string
	for line := range strings.Lines(out) {
		cells := strings.Fields(line)
		switch {
		case len(cells) == 0:
		case heads == nil:
			heads = cells
		default:
			row := make(map[string]string)
			for i, c := range cells[:min(len(cells), len(heads))] {
				row[heads[i]] = c
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// sortedLines are the lines that tell something.
func sortedLines(out string) []string {
	lines := strings.Fields(out)
	slices.Sort(lines)
	return lines
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func contains(t *testing.T, what, out string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(out, p) {
			t.Errorf("%s: %q is not in\n%s", what, p, out)
		}
	}
}

// A topic's life, by kafka-topics, kafka-configs, the consoles,
// kafka-get-offsets and kafka-delete-records.
func TestTopicTools(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		topic := w.name + "-topic"
		w.ran(ctx, t, topicTool, "", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=600000")
		if p := w.tool(ctx, t, topicTool, "", "--create", "--topic", topic); p.Exit != 1 || !strings.Contains(p.Out, "already exists") {
			t.Errorf("created twice: %+v", p)
		}
		contains(t, "described", w.ran(ctx, t, topicTool, "", "--describe", "--topic", topic),
			"PartitionCount: 2", "retention.ms=600000", "Partition: 0", "Partition: 1")
		w.ran(ctx, t, configTool, "", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.ms=700000")
		contains(t, "configs", w.ran(ctx, t, configTool, "", "--describe", "--entity-type", "topics", "--entity-name", topic), "retention.ms=700000")

		w.ran(ctx, t, produceTool, "a\nb\nc\n", "--topic", topic)
		same(t, "consumed", sortedLines(w.ran(ctx, t, consumeTool, "", "--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "20000")),
			[]string{"a", "b", "c"})
		ends := func(when string) (sum int) {
			for line := range strings.Lines(w.ran(ctx, t, offsetsTool, "", "--topic", topic, "--time", when)) {
				var n int
				if _, err := fmt.Sscan(line[strings.LastIndex(line, ":")+1:], &n); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				sum += n
			}
			return sum
		}
		if first, last := ends("earliest"), ends("latest"); first != 0 || last != 3 {
			t.Errorf("offsets from %d to %d", first, last)
		}
		file := filepath.Join(t.TempDir(), "offsets.json")
		upTo := fmt.Sprintf(`{"version":1,"partitions":[{"topic":%q,"partition":0,"offset":-1},{"topic":%q,"partition":1,"offset":-1}]}`, topic, topic)
		if err := os.WriteFile(file, []byte(upTo), 0o600); err != nil {
			t.Fatal(err)
		}
		w.ran(ctx, t, recordsTool, "", "--offset-json-file", file)
		if first, last := ends("earliest"), ends("latest"); first != 3 || last != 3 {
			t.Errorf("after the deletion offsets from %d to %d", first, last)
		}
		w.ran(ctx, t, topicTool, "", "--alter", "--topic", topic, "--partitions", "3")
		contains(t, "altered", w.ran(ctx, t, topicTool, "", "--describe", "--topic", topic), "PartitionCount: 3", "Partition: 2")
		w.ran(ctx, t, topicTool, "", "--delete", "--topic", topic)
		if out := w.ran(ctx, t, topicTool, "", "--list"); slices.Contains(strings.Fields(out), topic) {
			t.Errorf("after its deletion the topic is listed: %s", out)
		}
	})
}

// A share group's life, by kafka-configs, the console share consumer,
// kafka-share-groups and kafka-groups.
func TestShareGroupTools(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		topic := w.topic(ctx, t, "in", 1)
		group := w.name + ".g"
		w.ran(ctx, t, configTool, "", "--alter", "--entity-type", "groups", "--entity-name", group,
			"--add-config", "share.auto.offset.reset=earliest,share.record.lock.duration.ms=20000")
		own := w.ran(ctx, t, configTool, "", "--describe", "--entity-type", "groups", "--entity-name", group)
		contains(t, "own configs", own, "share.auto.offset.reset=earliest", "share.record.lock.duration.ms=20000", "DEFAULT_CONFIG:group.share.record.lock.duration.ms=30000")
		if strings.Contains(own, "share.delivery.count.limit") {
			t.Errorf("a default is told as the group's own:\n%s", own)
		}
		contains(t, "all configs", w.ran(ctx, t, configTool, "", "--describe", "--all", "--entity-type", "groups", "--entity-name", group), "share.delivery.count.limit=5")
		if p := w.tool(ctx, t, configTool, "", "--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", "share.record.lock.duration.ms=1"); p.Exit != 1 {
			t.Errorf("a lock of 1 ms: %+v", p)
		}
		w.ran(ctx, t, configTool, "", "--alter", "--entity-type", "groups", "--entity-name", group, "--delete-config", "share.record.lock.duration.ms")
		if out := w.ran(ctx, t, configTool, "", "--describe", "--entity-type", "groups", "--entity-name", group); strings.Contains(out, "20000") {
			t.Errorf("after the deletion:\n%s", out)
		}

		w.ran(ctx, t, produceTool, "a\nb\nc\n", "--topic", topic)
		consume := func() []string {
			t.Helper()
			return sortedLines(w.ran(ctx, t, shareTool, "", "--topic", topic, "--group", group, "--max-messages", "3", "--timeout-ms", "20000"))
		}
		same(t, "consumed", consume(), []string{"a", "b", "c"})
		same(t, "groups", cells(table(w.ran(ctx, t, groupTool, "", "--list", "--state")), "GROUP", group, "STATE"), []string{"Empty"})
		offsets := func() []string {
			t.Helper()
			return cells(table(w.ran(ctx, t, groupTool, "", "--describe", "--offsets", "--group", group)), "TOPIC", topic, "LAG")
		}
		same(t, "lag", offsets(), []string{"0"})

		m := w.javaMember(ctx, t, group, topic, nil)
		m.none(ctx, t)
		same(t, "states", cells(table(w.ran(ctx, t, groupTool, "", "--describe", "--state", "--group", group)), "GROUP", group, "STATE"), []string{"Stable"})
		contains(t, "members", w.ran(ctx, t, groupTool, "", "--describe", "--members", "--group", group), "CONSUMER-ID", topic)
		same(t, "groups", cells(table(w.ran(ctx, t, groupsTool, "", "--list", "--share")), "GROUP", group, "TYPE"), []string{"Share"})
		if p := w.tool(ctx, t, groupTool, "", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"); !strings.Contains(p.Err, "is not empty") {
			t.Errorf("reset beside a member: %+v", p)
		}
		if p := w.tool(ctx, t, groupTool, "", "--delete", "--group", group); !strings.Contains(p.Out+p.Err, "mpty") {
			t.Errorf("deleted beside a member: %+v", p)
		}
		m.close(ctx, t)

		same(t, "reset, not executed", cells(table(w.ran(ctx, t, groupTool, "", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--dry-run")), "TOPIC", topic, "NEW-OFFSET"), []string{"0"})
		same(t, "lag", offsets(), []string{"0"})
		w.ran(ctx, t, groupTool, "", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
		same(t, "lag after the reset", offsets(), []string{"3"})
		same(t, "consumed again", consume(), []string{"a", "b", "c"})
		same(t, "lag", offsets(), []string{"0"})
		w.ran(ctx, t, groupTool, "", "--delete-offsets", "--group", group, "--topic", topic)
		same(t, "offsets after their deletion", offsets(), nil)
		w.ran(ctx, t, groupTool, "", "--delete", "--group", group)
		if out := w.ran(ctx, t, groupTool, "", "--list"); slices.Contains(strings.Fields(out), group) {
			t.Errorf("after its deletion the group is listed: %s", out)
		}
	})
}

// cells gives a column of the rows whose key is value.
func cells(rows []map[string]string, key, value, column string) (out []string) {
	for _, r := range rows {
		if r[key] == value {
			out = append(out, r[column])
		}
	}
	return out
}

// What the cluster is, by kafka-features, kafka-broker-api-versions,
// kafka-cluster, kafka-log-dirs and kafka-metadata-quorum.
func TestClusterTools(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		levels := make(map[string]string)
		for line := range strings.Lines(w.ran(ctx, t, featureTool, "", "describe")) {
			f := strings.Fields(line)
			if i := slices.Index(f, "FinalizedVersionLevel:"); len(f) > 1 && i > 0 {
				levels[f[1]] = f[i+1]
			}
		}
		share := "2" // dead-letter queues
		if w.staging {
			share = "3" // KIP-1289 as drafted
		}
		if levels["transaction.version"] != "2" || levels["share.version"] != share || levels["group.version"] != "1" {
			t.Errorf("features %v", levels)
		}
		versions := w.ran(ctx, t, versionsTool, "")
		if n := strings.Count(versions, "ShareFetch(78): 1 to 2 [usable: 2]"); n != w.brokers {
			t.Errorf("%d brokers tell their versions of ShareFetch:\n%s", n, versions)
		}
		contains(t, "versions", versions, "ShareGroupHeartbeat(76): 1 [usable: 1]", "ShareAcknowledge(79): 1 to 2 [usable: 2]",
			"DescribeShareGroupOffsets(90): 0 to 1 [usable: 1]", "TxnOffsetCommit(28)", "InitProducerId(22)")
		if strings.Contains(versions, "UNKNOWN(95)") != w.staging {
			t.Errorf("key 95, with staging %v:\n%s", w.staging, versions)
		}
		if w.real || !w.staging {
			contains(t, "versions like stock Kafka", versions, "StreamsGroupTopologyDescriptionUpdate(93): 0 [usable: 0]", "UnregisterController(94): 0 [usable: 0]")
		}
		contains(t, "cluster", w.ran(ctx, t, clusterTool, "", "cluster-id"), "Cluster ID: ")
		if rows := table(w.ran(ctx, t, clusterTool, "", "list-endpoints")); len(rows) != w.brokers || rows[0]["STATE"] != "unfenced" {
			t.Errorf("endpoints %v", rows)
		}
		topic := w.topic(ctx, t, "in", 1)
		contains(t, "log dirs", w.ran(ctx, t, logDirsTool, "", "--describe", "--topic-list", topic), `"partition":"`+topic+`-0"`)
		// The embedded broker has no quorum, and says that it cannot tell.
		p := w.tool(ctx, t, quorumTool, "", "describe", "--status")
		if told := p.Exit == 0 && strings.Contains(p.Out, "LeaderId"); told != w.real {
			t.Errorf("quorum: %+v", p)
		}
		if !w.real {
			contains(t, "quorum", p.Err, "does not support DESCRIBE_QUORUM")
		}
	})
}
