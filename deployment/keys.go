package deployment

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"dbcontroller/syncer"
	"dbcontroller/upgradestate"
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
