// Package soak lets members with guarantee Ledger work at an even pace for long,
// and looks whether what they hold, and what the ledger holds, stays as large as it
// is. In the end all is verified as a chaos trial is.
package soak
