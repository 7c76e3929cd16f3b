// Package chaos lets processes of a Processor's members work on one real cluster
// while they are killed and stopped at any step of the work, brokers are killed
// and leaders move, acknowledgements are lost and handlers fail; and has package
// verify judge what came of it.
//
// Each process keeps a journal: what it does to itself, what the brokers delivered
// to it beyond the first time, and what its hooks were told. A line is written
// before the thing happens, and the system keeps it when the process is killed.
package chaos
