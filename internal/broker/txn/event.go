package txn

// Initialised is told when InitProducerId gave a producer id and epoch, and
// fenced whoever had the transactional id at one before.
type Initialised struct {
	TransactionalID string
	Key             Key
}

// Event is a transaction's decision: told once when it is made, with Applied
// false, and once when markers and acknowledgements have it, with Applied true.
type Event struct {
	TransactionalID string
	Writer          Key // who wrote in the transaction
	Commit          bool
	ByProducer      bool // EndTxn; false: fenced or timed out
	Applied         bool
	Partitions      []Partition
}
