package broker

// Of gives the Cluster inside a *sharetxntest.Cluster, for tests of this module
// that must see or break what the kit does not offer its users. Package
// sharetxntest sets it.
var Of func(kit any) *Cluster
