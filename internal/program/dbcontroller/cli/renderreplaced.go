package cli

import (
	"fmt"
	"strings"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
)

// replacedOf returns the replaced collections, latest first, and the progress of the new copy.
func replacedOf(r *dbv1.Replaced, ring int32) string {
	const most = 3
	var names []string
	kinds := r.GetKinds()
	for i := len(kinds) - 1; i >= 0 && len(names) < most; i-- {
		text := kinds[i].GetKind()
		if at := kinds[i].GetAt(); at != "" {
			text += " at " + terminal.Time(at) + " UTC"
		}
		names = append(names, text)
	}
	text := fmt.Sprintf("%s of %s", strings.Join(names, ", "), r.GetVersion())
	if more := len(kinds) - len(names); more > 0 {
		text = fmt.Sprintf("%s and %d more of %s", strings.Join(names, ", "), more, r.GetVersion())
	}
	text += fmt.Sprintf("; %s is rebuilt: ", r.GetTo())
	// Copied and total cover only the reporting shards, and none has begun yet.
	if r.GetReportingShards() == 0 {
		return text + "not begun"
	}
	if r.GetTotal() > 0 {
		text += fmt.Sprintf("%s of %s copied (%d %%), ", terminal.Count(r.GetCopied()), terminal.Count(r.GetTotal()), r.GetCopied()*100/r.GetTotal())
	}
	return text + fmt.Sprintf("%d of %d shards compared", r.GetComparedShards(), ring)
}
