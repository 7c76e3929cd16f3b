package contender

import "time"

// Job is one run: read a topic as the only member of a share group, from the
// start, and accept every record. With an Output each is copied there first, in
// transactions.
type Job struct {
	Seeds   string `json:"seeds"` // host:port, separated by commas
	Topic   string `json:"topic"`
	Group   string `json:"group"`
	Records int    `json:"records"` // to read at least
	Fetch   int    `json:"fetch"`   // that a fetch or a poll takes; 0: the client's default
	Output  string `json:"output"`  // topic to copy to
	Txn     int    `json:"txn"`     // records of a transaction, at most
}

// Report is how a job went. Times are in nanoseconds on the wire. Of a job with an
// Output what is told of polls is of commits, and nothing after the last one counts.
type Report struct {
	Records int   `json:"records"` // read and accepted
	Bytes   int64 `json:"bytes"`   // of their values; the floor does not look
	// First is how many of the records the first poll gave. The clock runs from
	// its return, and they do not count.
	First int           `json:"first"`
	Polls int           `json:"polls"` // that gave records; the first is one of them
	Start time.Duration `json:"start"` // from making the client to the first records
	Read  time.Duration `json:"read"`  // from then until the last records were handed out
	Acked time.Duration `json:"acked"` // from then until the last acknowledgement was answered
	CPU   time.Duration `json:"cpu"`   // of the process in the time of Acked, user and system
	// Requests were sent in that time, by name; of jobs with an Output only.
	Requests map[string]int `json:"requests,omitempty"`
}

// message is a line of a contender: one of its fields.
type message struct {
	First  bool    `json:"first,omitempty"`
	Report *Report `json:"report,omitempty"`
	Error  string  `json:"error,omitempty"`
}
