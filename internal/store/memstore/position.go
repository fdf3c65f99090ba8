package memstore

import (
	"context"
	"encoding/binary"
	"fmt"

	"dbcontroller.dev/record"
)

// Position returns the present end of the change log.
func (s *Store) Position(ctx context.Context) (record.Position, error) {
	if err := s.begin(ctx); err != nil {
		return record.Position{}, err
	}
	defer s.cluster.mu.Unlock()
	return s.cluster.positionAt(s.cluster.end()), nil
}

// end returns the number of entries ever logged.
func (c *Cluster) end() int { return c.forgotten + len(c.log) }

// positionAt returns the place before entry seq. Its time is the time of the previous entry or, at
// the end of the log, the present time. Callers hold mu.
func (c *Cluster) positionAt(seq int) record.Position {
	at := c.clock
	if seq < c.end() {
		at = c.log[seq-1-c.forgotten].at
	}
	return record.Position{At: versionAt(at), Token: binary.BigEndian.AppendUint64(nil, uint64(seq))}
}

func seqOf(p record.Position) (int, error) {
	if len(p.Token) != 8 {
		return 0, fmt.Errorf("position %x: it is from another backend", p.Token)
	}
	return int(binary.BigEndian.Uint64(p.Token)), nil
}
