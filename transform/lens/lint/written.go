package lint

import (
	"context"
	"errors"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// writtenLaw is the law for records that the new version's applications write.
const writtenLaw = "written"

// written transforms the sample of the new version down and up again. A failure here would
// otherwise be a parked record after the switch, in reverse sync.
func (c *checker) written(ctx context.Context, mains []string) (err error) {
	if len(c.Written) == 0 {
		return nil
	}
	keys := spill{limit: c.Memory}
	defer func() { err = errors.Join(err, keys.close()) }()
	all := sampled{from: c.down, limit: c.Limit, memory: c.Memory, mains: mains, bad: func(r record.Record, err error) {
		c.fail("down", []record.Record{r}, err)
	}}
	err = all.each(ctx, c.Written, func(id transform.GroupID, y []record.Record) error { return c.writtenGroup(id, y, &keys) })
	c.report.Written = all.read
	if err != nil {
		return err
	}
	return c.collisions(&keys)
}

func (c *checker) writtenGroup(id transform.GroupID, y []record.Record, keys *spill) error {
	c.report.Groups++
	t := &c.specs[id.Spec]
	name := nameOf(y, t.now)
	x, err := run(c.down, id, y, nil)
	if err != nil {
		c.fail("down", y, err)
		return nil
	}
	c.size("down", x)
	for _, r := range x {
		// Two new records may become one old record.
		if err := keys.add(r.Kind+"\x00"+string(r.Key), []byte(name)); err != nil {
			return err
		}
	}
	// Pass the new version's records as the complement, like the engine: list places and forms
	// belong to them.
	again, err := run(c.up, id, x, y)
	if err != nil {
		c.fail("up", x, err)
		return nil
	}
	law := &c.report.Laws[len(laws)]
	law.Tried++
	if err = same(again, y, true, nil); err == nil {
		return nil
	}
	law.Broken++
	if len(law.Examples) < c.Examples {
		law.Examples = append(law.Examples, Example{name, oneLine(err.Error())})
	}
	return nil
}
