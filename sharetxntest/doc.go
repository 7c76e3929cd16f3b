// Package sharetxntest is for tests of services: a Kafka cluster in the test's
// own process that speaks KIP-1289, faults that can be ordered, and an audit of
// what the brokers hold. Only tests import it.
package sharetxntest
