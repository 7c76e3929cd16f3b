package kafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// given are the ports that this process has had.
var given sync.Map

// FreePorts are n ports of the loopback interface that were free a moment ago.
// They lie below those that the system gives to clients (32768 on Linux): a
// broker that is down for a while must find its port free when it comes back.
// None is given twice by a process, whose clusters may start at the same time.
// Safe for concurrent use.
func FreePorts(n int) ([]int, error) {
	const low, high = 20_000, 32_000
	var ports []int
	for range 200 * n {
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		_ = l.Close() // nothing was sent on it
		if _, twice := given.LoadOrStore(port, true); twice {
			continue
		}
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free port between 20000 and 32000")
}
