// Package producer is the transactional producer (KIP-98, KIP-890) whose
// transactions also carry share acknowledgements (KIP-1289): outputs and
// acknowledgements commit or abort together. Producing needs brokers with
// transaction.version 2 (Kafka 4.0 and later), acknowledging in a transaction
// brokers that prove TxnShareAcknowledge.
package producer
