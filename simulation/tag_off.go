//go:build !synctests

package simulation

// tagged tells whether kgo waits in a way that a bubble knows.
const tagged = false
