package txnmanager

// identity is a producer id and its epoch (KIP-98). A transaction has one, read
// once and fixed by the first thing that is sent.
type identity struct {
	id    int64
	epoch int16
}

// unknownIdentity asks InitProducerId for whatever there is, fencing others.
var unknownIdentity = identity{-1, -1}

func (i identity) known() bool { return i.id >= 0 }
