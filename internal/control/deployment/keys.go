package deployment

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

func indexKey(prefix, name string) string { return prefix + "/index/" + name }

func (s *Store) key(parts ...string) string {
	return s.cfg.Prefix + "/" + s.name + "/" + strings.Join(parts, "/")
}

func (s *Store) recordKey() string { return s.key("record") }

// DriverKey returns the key of the lock of the one process that drives a switch.
func (s *Store) DriverKey() string { return s.key("driver") }

// Root returns the prefix of all keys of this deployment, for package shards.
func (s *Store) Root() string { return strings.TrimSuffix(s.key(""), "/") }

func (s *Store) serverKey(id string) string { return s.key("servers", url.PathEscape(id)) }

func (s *Store) progressKey(owner string) string { return s.key("progress", url.PathEscape(owner)) }

// planKey escapes the direction. Versions and hashes should not need it, but a slash would make a
// direction the prefix of another one.
func (s *Store) planKey(dir syncer.DirectionKey) string {
	return s.key("plans", url.PathEscape(string(dir)))
}

func (s *Store) planPartKey(dir syncer.DirectionKey, parts string, i int) string {
	return fmt.Sprintf("%s/%s/%d", s.planKey(dir), parts, i)
}

func (s *Store) checkpointKey(dir syncer.DirectionKey, shard int) string {
	return s.key("checkpoints", url.PathEscape(string(dir)), shardKey(shard))
}

func (s *Store) parkedPrefix(dir syncer.DirectionKey) string {
	return s.key("parked", url.PathEscape(string(dir)), "")
}

func (s *Store) parkedShardPrefix(dir syncer.DirectionKey, shard int) string {
	return s.parkedPrefix(dir) + shardKey(shard) + "/"
}

func shardKey(shard int) string { return fmt.Sprintf("%05d", shard) }

// parkedHash identifies a group in a key. Groups may be long and contain any byte.
func parkedHash(spec int, group string) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(spec) + "/" + group))
	return hex.EncodeToString(sum[:16])
}

// Directions returns the directions that are synced now, at most one.
func Directions(d upgradestate.Deployment) []syncer.DirectionKey {
	to, ok := upgradestate.Followed(d)
	if !ok {
		return nil
	}
	return []syncer.DirectionKey{syncer.KeyIn(d, to)}
}

// packFrom is the size in bytes from which the record is stored as gzip. The record of many kinds
// is one value, and every report and step writes it again. Similar names compress to a tenth. A
// switch of 1,000 kinds in two versions then stays far below etcd's limit for a request. Smaller
// records stay readable text.
const packFrom = 64 << 10

// maxRecord bounds the size of an unpacked record, in case a foreign value is stored.
const maxRecord = 64 << 20

// gzipMagic begins a packed record. JSON begins with other bytes.
var gzipMagic = []byte{0x1f, 0x8b}

// packRecord returns a record in stored form.
func packRecord(value []byte) []byte {
	if len(value) < packFrom {
		return value
	}
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // fails only for an invalid level
	_, _ = w.Write(value)                           // a buffer accepts everything
	_ = w.Close()
	return b.Bytes()
}

// unpackRecord is the inverse of packRecord.
func unpackRecord(value []byte) ([]byte, error) {
	if !bytes.HasPrefix(value, gzipMagic) {
		return value, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	// A small packed value can unpack to a huge one, so limit the output.
	out, err := io.ReadAll(io.LimitReader(r, maxRecord+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("unpack: %w", err)
	case len(out) > maxRecord:
		return nil, fmt.Errorf("unpack: more than %d bytes", maxRecord)
	}
	return out, nil
}
