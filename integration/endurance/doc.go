// Package endurance lets members of a share group work for long while members
// and brokers come, go and die, and judges from what each of them wrote down
// that nothing was lost.
//
// Every member logs what it is about to accept, and what brokers answered, before
// anything else happens; so what a killed member had under way is known, and a
// record that nobody accepted and nobody had under way is lost.
package endurance
