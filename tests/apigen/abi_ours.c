#include "gen/cuda_abi.h"
#define TABLE abi_ours
#include "abi_table.h"
