package conn

import "time"

// CloseConnections closes all connections, as after a refused login.
func (n *Conn) CloseConnections() { n.conns.closeBefore(time.Now()) }
