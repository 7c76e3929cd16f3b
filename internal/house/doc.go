// Package house holds what DESIGN.md states and no compiler checks: who imports
// whom, what a service may not carry, what every test must have, and what must
// never stand in a tracked file. It has no code, only tests; each rule is also
// fed examples that break it, so that a rule gone blind is noticed.
package house
