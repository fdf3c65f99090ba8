package outbound

import (
	"context"
	"net/url"
	"strings"
	"time"
)

// Patterns of a cell's stop endpoint, as Diego's cells serve it. Both answer 202.
const (
	StopPattern   = "POST /v1/lrps/{process_guid}/instances/{instance_guid}/stop"
	CancelPattern = "POST /v1/tasks/{task_guid}/cancel"
)

// repTimeout bounds a call to a cell. A cell that is slower finds out when it polls.
const repTimeout = 2 * time.Second

// StopInstance asks a cell to stop an instance.
func StopInstance(ctx context.Context, repURL, process, instance string) error {
	return callRep(ctx, repURL, StopPattern, process, instance)
}

// CancelTask asks a cell to stop a task.
func CancelTask(ctx context.Context, repURL, task string) error {
	return callRep(ctx, repURL, CancelPattern, task)
}

func callRep(ctx context.Context, repURL, pattern string, ids ...string) error {
	path := strings.TrimPrefix(pattern, "POST ")
	for _, id := range ids {
		before, after, _ := strings.Cut(path, "{")
		_, rest, _ := strings.Cut(after, "}")
		path = before + url.PathEscape(id) + rest
	}
	return Post(ctx, strings.TrimSuffix(repURL, "/")+path, nil, repTimeout)
}
