// Package sharetxntest is for tests of services: a Kafka cluster in the test's
// own process that speaks KIP-1289, faults that can be ordered, and an audit of
// what the brokers themselves saw. Only tests import it.
//
// A test of a service whose handler is handle:
//
//	func TestService(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			k := sharetxntest.Start(t, sharetxntest.Topic("in", 3))
//			k.Feed(t, &kgo.Record{Topic: "in", Value: []byte("a")})
//			k.Inject(t, sharetxntest.Fault{Key: sharetxntest.EndTxnKey, Action: sharetxntest.LoseAnswer()})
//			p, err := processor.New(k.Connect(t), processor.Config{
//				Group: "g", Topics: []string{"in"}, Handler: handle, DeadLetter: processor.DeadLetter{Topic: "dead"},
//			})
//			if err != nil {
//				t.Fatal(err)
//			}
//			k.RunUntilDrained(t, "g", p)
//			k.AssertExactlyOnce(t, "g", "out", "dead")
//		})
//	}
//
// # Virtual time
//
// Inside [testing/synctest.Test] network and clock are virtual: a lock of 30
// seconds ends, and a transaction times out, within milliseconds. Nothing has to
// be asked for; Start sees where it is. Four things are needed:
//
//   - Start, Connect and the other calls get the *testing.T that the bubble's
//     function was given. What they clean up must end inside of the bubble, and
//     only that T's Cleanup does.
//   - Clients reach the cluster through Connect or the options of Kafka. Nothing
//     in the bubble may wait for a socket, a process or a goroutine outside.
//   - What the test starts it stops: consumers, producers and clients of its own
//     are closed, by defer for example, before the function returns.
//   - No t.Run, t.Parallel or t.Deadline inside; open a bubble in each subtest.
//
// No build tag is needed. One of kgo's own mutexes is held over a wait: if two
// goroutines produce with one kgo client that has no producer id yet, and a
// planned fault delays its InitProducerID, the clock stops and the test hangs.
// Package producer and Feed ask for the id first. Code of yours that produces
// with kgo itself can do so too (kgo.Client.ProducerID), or be tested with the
// build tag synctests, under which kgo waits in a way that a bubble knows.
//
// Outside of a bubble the cluster listens on free ports of 127.0.0.1, and time
// is real. Heartbeats are quicker than Kafka's there, so that tests do not wait
// for members to be told.
//
// # What differs from a cluster of one's own
//
// Share groups start at the earliest offset. A topic that a client asks for and
// that does not exist is created with one partition. There are no ACLs and no
// retention.
package sharetxntest
