package kafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePorts are n ports of the loopback interface that were free a moment ago.
// They lie below those that the system gives to clients (32768 on Linux): a
// broker that is down for a while must find its port free when it comes back.
func FreePorts(n int) ([]int, error) {
	const low, high = 20_000, 32_000
	var ports []int
	for range 200 * n {
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close() // only after all are had, so that they differ
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free port between 20000 and 32000")
}
