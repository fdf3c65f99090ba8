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

// DriverKey is the lock of the one process that drives a switch.
func (s *Store) DriverKey() string { return s.key("driver") }

// Root is the prefix of all keys of this deployment, for package shards.
func (s *Store) Root() string { return strings.TrimSuffix(s.key(""), "/") }

func (s *Store) serverKey(id string) string { return s.key("servers", url.PathEscape(id)) }

func (s *Store) progressKey(owner string) string { return s.key("progress", url.PathEscape(owner)) }

// A direction holds versions and a hash, none of which should need escaping; should one
// hold a slash after all, it must not become another's prefix.
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

// parkedHash names a group in a key: groups may be long, and hold anything.
func parkedHash(spec int, group string) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(spec) + "/" + group))
	return hex.EncodeToString(sum[:16])
}

// Directions are those that are synced now, one at most.
func Directions(d upgradestate.Deployment) []syncer.DirectionKey {
	to, ok := upgradestate.Followed(d)
	if !ok {
		return nil
	}
	return []syncer.DirectionKey{syncer.KeyIn(d, to)}
}

// A record of many kinds is one value that every report and every step writes again. From
// packFrom bytes on it is stored as gzip, which names that resemble each other make a tenth
// of: 1,000 kinds in two versions in the middle of a switch stay far below what etcd takes
// in one request. Smaller ones stay text that people can read.
const packFrom = 64 << 10

// maxRecord bounds what a packed record may come to, against a value that is not ours.
const maxRecord = 64 << 20

// gzipMagic begins what is packed; JSON begins otherwise.
var gzipMagic = []byte{0x1f, 0x8b}

// packRecord is a record as it is stored.
func packRecord(value []byte) []byte {
	if len(value) < packFrom {
		return value
	}
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // fails for a wrong level only
	_, _ = w.Write(value)                           // a buffer takes everything
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
	out, err := io.ReadAll(io.LimitReader(r, maxRecord+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("unpack: %w", err)
	case len(out) > maxRecord:
		return nil, fmt.Errorf("unpack: more than %d bytes", maxRecord)
	}
	return out, nil
}
