// Package sharetxn holds the words every other package speaks: the connection
// to one Kafka cluster, the outcome of a transaction, the errors and the hooks.
//
// A service that consumes from a share group, transforms and produces imports
// this package to connect, and processor, which turns a function of one record
// into that service. Who writes the loop by hand imports shareconsumer, to poll
// and decide records, and producer, to run the transaction in which outputs and
// acknowledgements commit or abort together (KIP-1289).
package sharetxn
