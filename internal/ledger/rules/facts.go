package rules

import "time"

// Facts are what brokers told. What they refused to tell is in Refused, and the
// field that would have it is zero.
type Facts struct {
	Group string
	// What is asked for: the source topics, and the settings of who uses the ledger.
	Sources            []Source
	TransactionTimeout time.Duration
	ReadCommitted      bool // a group that reads uncommitted is fatal

	Brokers            []Broker // all that live, ascending
	TransactionVersion int16    // lowest finalized level that a broker tells; -1: none
	ShareVersion       int16    // likewise
	Settings           Settings // of the brokers

	Ledger Ledger
	Share  Share

	Refused []Refusal
}

// Source is a source topic; one without partitions does not exist.
type Source struct {
	Topic      string
	Partitions int
}

// Broker is what one offers: the highest version of each API, by key.
type Broker struct {
	ID   int32
	APIs map[int16]int16
}

// Settings are of the brokers' configuration; what is not told is no evidence.
type Settings struct {
	Replication map[string]string // of internal topics: their settings' names and values
	// TimeoutScan is how often coordinators look for transactions whose time is
	// up; 0: not told.
	TimeoutScan time.Duration
}

// Ledger is the ledger topic.
type Ledger struct {
	Topic      string
	Hidden     bool // brokers do not tell whether it exists
	Partitions int  // 0: it does not exist
	Replicas   int  // of the partition that has fewest
	Configs    map[string]string

	// Where the records were read, Guarantee is what they say; or Broken why they
	// do not agree, and Remedy what mends that. TOPICS in it stands for Sources.
	Guarantee, Broken, Remedy string
}

// Share are the group's configs, or what the brokers have for groups that set
// none.
type Share struct {
	ReadCommitted bool
	NoRenewal     bool // locks may not be renewed
	DeliveryLimit int
	Lock          time.Duration
	Known         bool
}

// Refusal is what brokers do not tell for want of rights.
type Refusal struct {
	Setting string // that cannot be read
	ACL     string // that would let it be
	Fatal   bool   // without it nobody knows whether the ledger holds
}
