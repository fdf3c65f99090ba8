// Command server serves the tasks, v1 and v2, on whichever version is active.
package main

import (
	"dbcontroller.dev"
	"dbcontroller.dev/starter/service/tasks"
)

func main() { dbcontroller.Serve(tasks.Service()) }
