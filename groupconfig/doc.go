// Package groupconfig sets and reads the configs of share groups: isolation
// level, where a group begins, lock duration, delivery limit and so on. They are
// of the group (resource type GROUP, KIP-932), not of a client, and each broker
// takes them over by itself; so Set returns when every broker tells them.
package groupconfig
