// Package ledger sets up and looks after the commit ledger of a share group: the
// topic in which transactions write which records they decide, so that a
// Processor with guarantee Ledger is exactly-once on Kafka 4.2 and later. A
// Processor uses the ledger by itself; what is here is what people do once, or now
// and then. The command `sharetxn ledger` is made of it, docs/ledger.md says when
// to use what.
package ledger
