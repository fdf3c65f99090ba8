package localmongo

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// awaitStopped waits after a SIGSTOP until each thread of the process is stopped. Before that, a
// thread may still respond to a client.
func awaitStopped(pid int) error {
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Millisecond),
		backoff.WithMaxInterval(50*time.Millisecond), backoff.WithMaxElapsedTime(10*time.Second))
	return backoff.Retry(func() error {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(stats) == 0 {
			return backoff.Permanent(fmt.Errorf("no threads of process %d: %v", pid, err))
		}
		for _, name := range stats {
			stat, err := os.ReadFile(name) // #nosec G304 -- a name that /proc lists
			if err != nil {
				continue // the thread has ended
			}
			// The state follows the name, which is in parentheses and may contain any character.
			rest := stat[bytes.LastIndexByte(stat, ')')+1:]
			if !bytes.HasPrefix(rest, []byte(" T")) {
				return fmt.Errorf("a thread of process %d is in state%.2s", pid, rest)
			}
		}
		return nil
	}, policy)
}
