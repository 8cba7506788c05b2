# SPDX-License-Identifier: Apache-2.0
# The OpenGL device, over Mesa's llvmpipe here (deploy/setup.sh). Without a driver it says SKIP.
.PHONY: check-gl check-gl-nightly
check-gl: all $(BUILD)/device_test ## the OpenGL device: contract, some cases, a network, faults
	$(Q)sh tests/check.sh gl 'sh tests/conform/gl/run.sh $(BUILD)'
check-gl-nightly: ## all cases, and random modules (minutes; N, SEED)
check-gl-nightly: all $(BUILD)/device_test $(HLO_DIFF)
	$(Q)GROUP_LIMIT=$(NIGHTLY_LIMIT) sh tests/check.sh gl 'sh tests/conform/gl/run.sh $(BUILD) --all' \
	  fuzz-gl '$(PYTHON) tests/fuzz-hlo/fuzz_hlo.py --diff $(HLO_DIFF) --device gl \
	    --n $(N) --seed $(SEED) --out build/fuzz-gl' \
	  fuzz-gl-tiles 'HLOD_GL_FORM=tiles $(PYTHON) tests/fuzz-hlo/fuzz_hlo.py \
	    --diff $(HLO_DIFF) --device gl --theme contraction --n $(N) --seed $(SEED) \
	    --out build/fuzz-gl'
