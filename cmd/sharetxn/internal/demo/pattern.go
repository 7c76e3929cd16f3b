package demo

// pattern is how outputs and acknowledgements are made one, or not.
type pattern uint8

const (
	staged        pattern = iota // acknowledgements in the transaction: the Processor
	commitThenAck                // the transaction first, the acknowledgements after it
)

func (p pattern) String() string { return [...]string{"staged", "commit-then-ack"}[p] }
