package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/internal/etcdconn"
	"dbcontroller.dev/record"
)

// etcd has nothing that keeps two owners of prefixes apart: one of whom has /bbs/ and the other
// /bbs/eu/ is only seen from the keys themselves. So a namespace is not begun where somebody is
// already, above or below, and nothing is ever removed but keys of the layout's very forms.

// What the layout makes below the prefix. Of what belongs to a collection the first submatch is
// the beginning of all that it has of that sort.
var (
	ofCollection = regexp.MustCompile(`(?s)^([dxob]/[0-9a-f]{32}/)`)
	ofNamespace  = regexp.MustCompile(`(?s)^(i|l|scratch|[gsreftw]/[0-9a-f]{32}|[npc]/.+|m/[A-Za-z0-9_-]+/[A-Za-z0-9_-]+)$`)
	identityForm = regexp.MustCompile(`^[A-Z2-7]{26}$`)
)

// inventoryPage is how many keys are read at once, of which only a few count where a collection
// is large.
const inventoryPage = 1000

// inventory is what there is below the prefix: own has the namespace's keys, and a prefix with its
// slash for each range of them; others what else there is, by the first name below the prefix.
// Nothing of it was changed before the revision.
func (s *Store) inventory(ctx context.Context) (own, others []string, revision int64, err error) {
	end := clientv3.GetPrefixRangeEnd(s.at.all())
	for from := s.at.all(); ; {
		resp, err := s.conn.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(inventoryPage))
		if err != nil {
			return nil, nil, 0, s.readError("list keys below "+s.at.all(), err)
		}
		if revision == 0 {
			revision = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			key := string(kv.Key)
			if key < from {
				continue
			}
			from = key + "\x00"
			rest := strings.TrimPrefix(key, s.at.all())
			if m := ofCollection.FindStringSubmatch(rest); m != nil {
				own = append(own, s.at.all()+m[1])
				from = clientv3.GetPrefixRangeEnd(s.at.all() + m[1])
				continue
			}
			if ofNamespace.MatchString(rest) {
				own = append(own, key)
				continue
			}
			name, _, below := strings.Cut(rest, "/")
			name = s.at.all() + name
			if below {
				name += "/"
			}
			if below && len(rest) > 2 && rest[1] != '/' { // where the layout has nothing
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

// removal has a prefix, or a key, of an inventory removed.
func removal(own string) clientv3.Op {
	if strings.HasSuffix(own, "/") {
		return clientv3.OpDelete(own, clientv3.WithPrefix())
	}
	return clientv3.OpDelete(own)
}

// remove removes what an inventory has found, as long as the comparisons hold.
func (s *Store) remove(ctx context.Context, what string, own []string, cmps ...clientv3.Cmp) (all bool, err error) {
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

// alone refuses a prefix, of a namespace that has no identity yet, that contains somebody's keys
// or is among those of another namespace, and returns the comparisons under which that is still
// so. What is above the prefix counts as far as the user may read there.
func (s *Store) alone(ctx context.Context) (still []clientv3.Cmp, err error) {
	refuse := func(format string, args ...any) error {
		return &record.UnsupportedError{What: "prefix " + s.at.all(), Reason: fmt.Sprintf(format, args...) + ": give each of them a prefix of its own (etcd.prefix), of which none is below another"}
	}
	for i := range len(s.at.all()) - 1 {
		above := layout(s.at.all()[:i+1])
		if !strings.HasSuffix(above.all(), "/") {
			continue
		}
		for _, key := range []string{above.scratch(), above.identity()} {
			value, mod, err := s.get(ctx, "look above the prefix", key)
			switch {
			case errors.Is(err, etcdconn.ErrDenied):
			case err != nil:
				return nil, err
			case key == above.scratch() && string(value) == scratchMade:
				return nil, refuse("below %s are the scratch keys of a rehearsal, which are thrown away", above.all())
			case key == above.identity() && identityForm.Match(value):
				return nil, refuse("another namespace has all keys below %s", above.all())
			default:
				still = append(still, unchanged(key, mod))
			}
		}
	}
	_, others, revision, err := s.inventory(ctx)
	if err != nil {
		return nil, err
	}
	if len(others) > 0 {
		return nil, refuse("somebody has keys below it already, %s", some(others))
	}
	return append(still, clientv3.Compare(clientv3.ModRevision(s.at.all()).WithPrefix(), "<", revision+1)), nil
}

// some names what an inventory has found, or how much there is of it besides.
func some(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
