// Package acknowledger commits acknowledgements in transactions of their own
// (KIP-1289), for pipelines without a Kafka producer: all of what was accepted
// and rejected in some batches becomes final together, or none of it. It is a
// thin layer over package producer and needs brokers that prove
// TxnShareAcknowledge. Where outputs belong to the acknowledgements use package
// producer.
package acknowledger
