package subprocess

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports of servers lie below those that systems give to outgoing connections. A connection could
// take the port of a server that is not running for a moment.
const (
	firstPort = 10000
	lastPort  = 32767
)

// FreePorts returns n different ports of 127.0.0.1 that were free just now. It is for programs that
// cannot choose their own: see Addresses.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		port := firstPort + rand.IntN(lastPort-firstPort+1) // #nosec G404 -- not a secret
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil && tries == lastPort {
			return nil, fmt.Errorf("find free port: %w", err)
		}
		if err != nil {
			continue
		}
		// All stay open until the last is chosen, so that they differ.
		defer l.Close()
		ports = append(ports, port)
	}
	return ports, nil
}
