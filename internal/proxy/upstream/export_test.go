package upstream

// Direct reports whether messages go over a line.
func (c *Conn) Direct() bool { return c.line != nil }

// Lines counts the connections that carry messages of clients.
func (c *Cluster) Lines() int {
	c.lines.mu.Lock()
	defer c.lines.mu.Unlock()
	return len(c.lines.used)
}
