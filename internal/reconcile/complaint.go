package reconcile

import (
	"strings"
	"sync"
)

// Complaint decides which errors of something that is tried again and again are worth a line
// in the log: each reason once, until it works. Two errors that differ in numbers alone are
// one reason, for times, ports and counts are in their texts. The zero value has no error.
// Its methods may be called concurrently.
type Complaint struct {
	mu   sync.Mutex
	said map[string]bool // by reason; nil: it works
}

// mostReasons bounds the lines until it works again: a database may be away for hours.
const mostReasons = 10

// News reports whether an error is worth a line, which the caller writes then.
func (c *Complaint) News(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// Over notes that it works (again).
func (c *Complaint) Over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = nil
}
