// Package simulation runs whole scenarios in virtual time: processes with
// several members each, a cluster of the embedded broker, and whatever a script
// does to them. Ten minutes of the cluster's time take seconds. Only tests import
// it.
//
// # Scripts
//
// A script is a text: first what the run is set up with, a field a line, then
// what happens, an operation a line, with the time since the start.
//
//	set guarantee staged
//	set profile kip93
//	set form closure
//	0s start p0
//	1s produce 30
//	2.5s fault EndTxn 1 lose-answer
//	40s kill p0
//
// What may stand in a line is told by Fields and Verbs. After the last operation
// everything that was broken heals, a process runs if none did, and the group must
// drain within a bound. Then the end is judged: see judge.go.
//
// # What repeats and what does not
//
// A seed always makes the same script, and a script makes the same faults at the
// same moments of virtual time. Which of two goroutines that are ready runs first
// is the Go scheduler's choice, though, so a run is near to another of the same
// script and not the same. A replay therefore runs a script several times.
//
// # The build tag
//
// All of it needs the build tag synctests: without it kgo waits on mutexes that a
// bubble of testing/synctest does not know, and a run may hang. The tests then
// fail at once and say so.
package simulation
