package rules

// Configs that a ledger topic must have, by name. Without the first three, and
// with an unclean election, brokers would drop entries that still decide.
const (
	CleanupPolicy  = "cleanup.policy"
	RetentionMs    = "retention.ms"
	RetentionBytes = "retention.bytes"
	MinInsync      = "min.insync.replicas"
	Unclean        = "unclean.leader.election.enable"
)

// TopicConfigs are those of a ledger topic with so many replicas.
func TopicConfigs(replicas int) map[string]string {
	insync := "1"
	if replicas >= 3 {
		insync = "2"
	}
	return map[string]string{CleanupPolicy: "delete", RetentionMs: "-1", RetentionBytes: "-1", MinInsync: insync, Unclean: "false"}
}
