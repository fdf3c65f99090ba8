package reconcile

import (
	"strings"
	"sync"
)

// Complaint decides which errors of a retried action deserve a log line: each reason once, until
// the action succeeds. Errors that differ only in digits have the same reason, because their texts
// contain times, ports and counts. The zero value is ready for use. It is safe for concurrent use.
type Complaint struct {
	mu   sync.Mutex
	said map[string]bool // by reason; nil after a success
}

// mostReasons limits the lines until the next success: a database may be away for hours.
const mostReasons = 10

// News reports whether err deserves a log line. The caller then writes the line.
func (c *Complaint) News(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Digits are removed, so that two errors with other times or ports count as one reason.
	reason := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
	if c.said[reason] || len(c.said) == mostReasons {
		return false
	}
	if c.said == nil {
		c.said = map[string]bool{}
	}
	c.said[reason] = true
	return true
}

// Over records a success, after which each reason is news again.
func (c *Complaint) Over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = nil
}
