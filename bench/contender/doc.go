// Package contender has the share consumers that bench holds against each other,
// each as a process of its own, so that processor time and memory are its own
// too: ours, kgo's, Java's, and a floor that only moves bytes.
//
// A process takes jobs, one line of JSON each, and answers each with lines of
// JSON: one when the first records have come, one with the Report at the end. It
// lives as long as its input, so that Java's is warm after the first job.
package contender
