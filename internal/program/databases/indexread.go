package databases

import (
	"context"
	"fmt"

	"dbcontroller.dev/record"
)

var _ record.IndexReader = (*client)(nil)

func (c *client) ListIndexed(ctx context.Context, req record.IndexRequest) (record.IndexPage, error) {
	return ask(ctx, c, func(m record.OnceClient) (record.IndexPage, error) {
		reader, ok := m.(record.IndexReader)
		if !ok {
			return record.IndexPage{}, fmt.Errorf("list %s by %s: %w", req.Token.Name, req.Field, record.ErrNoIndex)
		}
		return reader.ListIndexed(ctx, req)
	})
}
