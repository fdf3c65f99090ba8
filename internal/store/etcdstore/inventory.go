package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/record"
)

// etcd does not separate two owners of prefixes. If one has /bbs/ and the other /bbs/eu/, only the
// keys show it. So a namespace never begins where somebody else has keys, above or below it. The
// package removes only keys of the exact forms of the layout.

// The forms of keys below the prefix. For keys of a collection, the first submatch is the common
// prefix of all its keys of that sort.
var (
	ofCollection = regexp.MustCompile(`(?s)^([dxob]/[0-9a-f]{32}/)`)
	ofNamespace  = regexp.MustCompile(`(?s)^(i|l|u|scratch|[gsreftw]/[0-9a-f]{32}|[npc]/.+|m/[A-Za-z0-9_-]+/[A-Za-z0-9_-]+)$`)
	identityForm = regexp.MustCompile(`^[A-Z2-7]{26}$`)
)

// inventoryPage is the number of keys in one read. For a large collection only the first few
// matter.
const inventoryPage = 1000

// inventory lists the keys below the prefix. own has the namespace's keys, and a prefix with its
// slash for each range of them. others has all other keys by their first name below the prefix.
// Nothing in the result changed before revision.
func (s *Store) inventory(ctx context.Context) (own, others []string, revision int64, err error) {
	end := clientv3.GetPrefixRangeEnd(s.at.all())
	for from := s.at.all(); ; {
		resp, err := s.conn.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(inventoryPage))
		if err != nil {
			return nil, nil, 0, s.readError("list keys below "+s.at.all(), err)
		}
		if revision == 0 {
			revision = resp.Header.GetRevision()
		}
		// The remaining keys of a page may lie in a range that was just skipped.
		for _, kv := range resp.Kvs {
			key := string(kv.Key)
			if key < from {
				continue
			}
			from = key + "\x00"
			rest := strings.TrimPrefix(key, s.at.all())
			// One key shows that the range exists, so skip the rest of a large collection.
			if m := ofCollection.FindStringSubmatch(rest); m != nil {
				own = append(own, s.at.all()+m[1])
				from = clientv3.GetPrefixRangeEnd(s.at.all() + m[1])
				continue
			}
			// Single keys of the layout are removed one by one.
			if ofNamespace.MatchString(rest) {
				own = append(own, key)
				continue
			}
			// Anything else belongs to somebody else and is only reported.
			name, _, below := strings.Cut(rest, "/")
			name = s.at.all() + name
			if below {
				name += "/"
			}
			if below && len(rest) > 2 && rest[1] != '/' { // the layout has no such range, so skip it
				from = clientv3.GetPrefixRangeEnd(name)
			}
			if len(others) == 0 || others[len(others)-1] != name {
				others = append(others, name)
			}
		}
		if !resp.More || from >= end {
			return own, others, revision, nil
		}
	}
}

// removal returns the operation that removes a key or prefix of an inventory.
func removal(own string) clientv3.Op {
	if strings.HasSuffix(own, "/") {
		return clientv3.OpDelete(own, clientv3.WithPrefix())
	}
	return clientv3.OpDelete(own)
}

// remove deletes the keys of an inventory while the comparisons hold. all is false if one fails.
func (s *Store) remove(ctx context.Context, what string, own []string, cmps ...clientv3.Cmp) (all bool, err error) {
	// etcd limits the operations of a transaction, so remove the keys in parts.
	for part := range slices.Chunk(own, s.most) {
		ops := make([]clientv3.Op, len(part))
		for i, key := range part {
			ops[i] = removal(key)
		}
		done, err := s.write(ctx, what, cmps, ops, nil)
		if err != nil || !done.Succeeded {
			return false, err
		}
	}
	return true, nil
}

// alone refuses a prefix that has foreign keys, or that lies inside another namespace, for a
// namespace without an identity. It returns comparisons that keep this true in a transaction. Above
// the prefix it checks only keys that the user may read.
func (s *Store) alone(ctx context.Context) (still []clientv3.Cmp, err error) {
	refuse := func(format string, args ...any) error {
		return &record.UnsupportedError{What: "prefix " + s.at.all(), Reason: fmt.Sprintf(format, args...) + ": give each of them its own prefix (etcd.prefix), none below another"}
	}
	for i := range len(s.at.all()) - 1 {
		above := layout(s.at.all()[:i+1])
		if !strings.HasSuffix(above.all(), "/") {
			continue
		}
		for _, key := range []string{above.scratch(), above.identity()} {
			value, mod, err := s.get(ctx, "look above the prefix", key)
			switch {
			// Without permission to read there, only this prefix can be checked.
			case errors.Is(err, etcdconn.ErrDenied):
			case err != nil:
				return nil, err
			case key == above.scratch() && string(value) == scratchMade:
				return nil, refuse("the keys below %s are scratch keys of a rehearsal, which are deleted", above.all())
			case key == above.identity() && identityForm.Match(value):
				return nil, refuse("another namespace has all keys below %s", above.all())
			default:
				still = append(still, unchanged(key, mod))
			}
		}
	}
	// A key that appears after this revision makes the last comparison fail.
	_, others, revision, err := s.inventory(ctx)
	if err != nil {
		return nil, err
	}
	if len(others) > 0 {
		return nil, refuse("there are other keys below it already, %s", some(others))
	}
	return append(still, clientv3.Compare(clientv3.ModRevision(s.at.all()).WithPrefix(), "<", revision+1)), nil
}

// some joins the first names, and the number of further ones.
func some(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
